/** `volery/serve`: models behind OpenAI's API, as a `fetch` handler. */
import { createHandlerMaker } from "./handler.js";
import { once } from "../once.js";

export const createHandler = createHandlerMaker({ once, watched: (body) => body });
