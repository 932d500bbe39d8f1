/** `volery/serve` in Cloudflare Workers, where requests that wait for the same model help it on. */
import { once, watched } from "../hosts/workerd.js";
import { createHandlerMaker } from "./handler.js";

export const createHandler = createHandlerMaker({ once, watched });
