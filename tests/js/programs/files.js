// Helpers of the test programs: whole files, base64.

/** All bytes of a file of a source. */
export async function bytesOf(source, name) {
  const parts = [];
  for await (const chunk of source.open(name, {})) parts.push(chunk.slice());
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

export async function jsonOf(source, name) {
  return JSON.parse(new TextDecoder().decode(await bytesOf(source, name)));
}

export function base64(view) {
  const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) {
    text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  }
  return btoa(text);
}

/** What a promise rejects with, as plain data. */
export async function failureOf(promise) {
  try {
    await promise;
  } catch (error) {
    return {
      name: error.name,
      message: error.message,
      bytesRequested: error.bytesRequested ?? null,
    };
  }
  return null;
}
