// Three mistakes that the declarations find.
import { load, loadModel } from "volery";

await load("/model/", { threads: "2" });
await loadModel("/model/", { pool: "threaded" });
(await loadModel("/model/")).run("text");
