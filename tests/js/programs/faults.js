// What loading each of some broken artifacts throws.
import { failureOf } from "./files.js";

export async function main({ volery }, { locations, options }) {
  const failures = {};
  for (const [name, location] of Object.entries(locations)) {
    failures[name] = await failureOf(volery.loadModel(location, options));
  }
  return failures;
}
