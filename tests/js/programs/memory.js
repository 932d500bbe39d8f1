// M4: hosts that refuse some WebAssembly memories.
import { failureOf } from "./files.js";

export async function main({ volery }, { artifact, maxSharedPages, maxPages, pool }) {
  const Real = WebAssembly.Memory;
  const asked = [];
  WebAssembly.Memory = new Proxy(Real, {
    construct(_, [descriptor]) {
      asked.push({ shared: descriptor.shared === true, maximum: descriptor.maximum });
      const limit = descriptor.shared ? maxSharedPages : maxPages;
      // The probe's one page is always granted: Safari grants it too.
      if (descriptor.maximum > Math.max(1, limit)) throw new RangeError("Out of memory");
      return new Real(descriptor);
    },
  });
  try {
    const loading = volery.loadModel(artifact, { threads: 2, pool });
    const failure = await failureOf(loading);
    if (failure) return { failure, asked };
    const model = await loading;
    const { threads, variant, warnings, goldens } = model.info;
    await model.close();
    return { threads, variant, warnings, goldens, asked };
  } finally {
    WebAssembly.Memory = Real;
  }
}
