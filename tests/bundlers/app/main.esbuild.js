// The application for esbuild, which does not follow `new URL(…, import.meta.url)`.
import { answer } from "./answer.js";

globalThis.run = answer;
