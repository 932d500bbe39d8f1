/** What samples look like: choices of chats, and of completions. */

/** @typedef {import("../generation/results.js").TextPiece} TextPiece */
/** @typedef {"stop" | "length" | null} Finish */
/** @typedef {(tokenId: number) => string} TokenText */

/**
 * How an endpoint shows samples.
 *
 * @typedef {object} Shape
 * @property {string} prefix of ids
 * @property {string} whole `object` of an answer
 * @property {string} chunk `object` of a piece of a streamed one
 * @property {(index: number) => object | null} opening the first choice of a streamed sample
 * @property {(index: number, text: string, finish: Finish, logprobs: object | null) => object}
 *   delta a choice of a streamed sample
 * @property {(index: number, text: string, finish: Finish, logprobs: object | null) => object}
 *   choice a whole sample
 * @property {(pieces: readonly TextPiece[], textOf: TokenText, offset: number) => object} logprobs
 *   of successive tokens, the first of which begins at this character of the sample's text
 */

// JSON has no infinities; the API's own word for a token that cannot be
const LOWEST = -9999;
const encoder = new TextEncoder();

/** @param {number | null} logprob */
const finite = (logprob) => Math.max(logprob ?? LOWEST, LOWEST);

/**
 * @param {string} token
 * @param {number | null} logprob
 */
function chatToken(token, logprob) {
  // Part of a character: the token's text does not tell its bytes
  const bytes = token.includes("\ufffd") ? null : [...encoder.encode(token)];
  return { token, logprob: finite(logprob), bytes };
}

/** @type {Shape} */
export const CHAT = {
  prefix: "chatcmpl-",
  whole: "chat.completion",
  chunk: "chat.completion.chunk",
  opening: (index) => {
    const delta = { role: "assistant", content: "" };
    return { index, delta, logprobs: null, finish_reason: null };
  },
  delta: (index, text, finish, logprobs) => {
    return { index, delta: text === "" ? {} : { content: text }, logprobs, finish_reason: finish };
  },
  choice: (index, text, finish, logprobs) => {
    const message = { role: "assistant", content: text, refusal: null };
    return { index, message, logprobs, finish_reason: finish };
  },
  logprobs: (pieces, textOf) => {
    return {
      content: pieces.map(({ tokenId, logprob, topLogprobs }) => ({
        ...chatToken(textOf(tokenId), logprob),
        top_logprobs: topLogprobs.map((top) => chatToken(textOf(top.tokenId), top.logprob)),
      })),
      refusal: null,
    };
  },
};

/** @type {Shape} */
export const COMPLETION = {
  prefix: "cmpl-",
  whole: "text_completion",
  chunk: "text_completion",
  opening: () => null,
  delta: (index, text, finish, logprobs) => {
    return { index, text, logprobs, finish_reason: finish };
  },
  choice: (index, text, finish, logprobs) => {
    return { index, text, logprobs, finish_reason: finish };
  },
  logprobs: (pieces, textOf, offset) => {
    const tokens = pieces.map(({ tokenId }) => textOf(tokenId));
    let at = offset;
    return {
      tokens,
      token_logprobs: pieces.map(({ logprob }) => finite(logprob)),
      top_logprobs: pieces.map(({ topLogprobs }) =>
        Object.fromEntries(topLogprobs.map((top) => [textOf(top.tokenId), finite(top.logprob)])),
      ),
      text_offset: pieces.map(({ text }) => (at += text.length) - text.length),
    };
  },
};
