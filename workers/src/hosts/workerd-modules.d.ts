/** Edge runtimes compile a `.wasm` import while they are deployed. */
declare module "*.wasm" {
  const module: WebAssembly.Module;
  export default module;
}

/** Of Cloudflare Workers. */
declare module "cloudflare:workers" {
  /** Let the present request last until a promise settles, whatever its caller does. */
  export function waitUntil(promise: Promise<unknown>): void;
}

/** Of Cloudflare Workers: bytes as they are, through the runtime itself. */
declare class IdentityTransformStream extends TransformStream<Uint8Array, Uint8Array> {}
