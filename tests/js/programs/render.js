// Renders chats by templates, and disarms what messages hold.
import { checkMessages, guarded } from "../../../workers/src/chat/messages.js";
import { ChatTemplate } from "../../../workers/src/chat/template.js";

const textOf = (render) => {
  try {
    // Escaped: the answer is one line, whatever its reader takes for the end of one
    return encodeURIComponent(render());
  } catch (error) {
    return error.name;
  }
};

export async function main(_, { templates, chats, controlTokens }) {
  const rendered = templates.map((source) => {
    const template = new ChatTemplate(source, { bosToken: "<s>", eosToken: "</s>" });
    return chats.map(({ messages, ...options }) =>
      textOf(() => template.render(messages, options)),
    );
  });
  const safe = chats.map(({ messages }) => {
    const { messages: disarmed, guard } = guarded(checkMessages(messages), controlTokens);
    return encodeURIComponent(JSON.stringify([disarmed, guard]));
  });
  let broken = null;
  try {
    new ChatTemplate("{% for m in messages %}");
  } catch (error) {
    broken = error.name;
  }
  return { rendered, safe, broken };
}
