/** Edge runtimes compile a `.wasm` import while they are deployed. */
declare module "*.wasm" {
  const module: WebAssembly.Module;
  export default module;
}
