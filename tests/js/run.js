// Runs a test program and answers with its result, or with the stack of what it threw.
export async function answer(program, context, args) {
  try {
    const { main } = await import(`./programs/${program}.js`);
    return { result: (await main(context, args)) ?? null };
  } catch (error) {
    return { error: `${error}\n${error?.stack}` };
  }
}
