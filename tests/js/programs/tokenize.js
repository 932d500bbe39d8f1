// Tokenizes texts, and turns the ids of a generating model back into text.
import { HFTokenizer } from "../../../workers/src/embedding/tokenizer.js";
import { TextReader } from "../../../workers/src/generation/text.js";
import { HFTextTokenizer } from "../../../workers/src/generation/tokenizer.js";

export async function main(_, { json, kind, texts, chats = [], idLists = [], streams = [] }) {
  const bytes = new TextEncoder().encode(json);
  if (kind === "embed") {
    const tokenizer = new HFTokenizer(bytes, 2 ** 30);
    return { ids: texts.map((text) => tokenizer.encode(text, "the text").ids) };
  }
  const tokenizer = new HFTextTokenizer(bytes);
  return {
    ids: texts.map((text) => tokenizer.encode(text)),
    chats: chats.map(([text, guard]) => tokenizer.encodeChat(text, guard)),
    // Escaped: the answer is one line, whatever its reader takes for the end of one
    decoded: idLists.map((ids) => encodeURIComponent(tokenizer.decode(ids))),
    streams: streams.map(([ids, stops]) => {
      const reader = new TextReader((some) => tokenizer.decode(some), stops);
      const pieces = ids.map((id) => reader.feed(id));
      return [...pieces, reader.flush()].map(encodeURIComponent);
    }),
    controlTokens: tokenizer.controlTokens,
  };
}
