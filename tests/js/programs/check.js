// What the checks say of steps: null, or the error's name and message.
import { StepChecker } from "../../../workers/src/step/check.js";
import { failureOf } from "./files.js";
import { stepOf } from "./steps_json.js";

export async function main(_, { bounds, limits, steps }) {
  const checker = new StepChecker(bounds, limits);
  const verdicts = [];
  for (const step of steps) {
    verdicts.push(await failureOf((async () => checker.check(stepOf(step)))()));
  }
  return verdicts;
}
