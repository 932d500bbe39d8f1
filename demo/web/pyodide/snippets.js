/** Programs to begin with. */
export const SNIPPETS = [
  {
    name: "Search",
    code: `from page import load   # runtime_py.load, and a dashboard

model = await load("/artifacts/minilm/")

texts = [
    "Owls hunt by ear in complete darkness.",
    "Penguins fly under water.",
    "Bread needs salt and time.",
    "Storks follow warm air across the strait.",
]
vectors = await model.embed(texts)
query = await model.embed("birds at night")


def cosine(a, b):  # the vectors have length 1
    return sum(x * y for x, y in zip(a, b))


for text, v in sorted(zip(texts, vectors), key=lambda p: -cosine(query, p[1])):
    print(f"{cosine(query, v):.3f}  {text}")
`,
  },
  {
    name: "Two classes",
    code: `import asyncio
import runtime_py as rt
from page import load

# Bulk steps of 10 ms, once their time has been learned.
config = rt.SchedulerConfig(step_target_ms=10)
model = await load("/artifacts/minilm/", config=config)


async def bulk():
    texts = (f"Note {i}: a heron." for i in range(10_000))
    async for _ in model.embed_stream(texts):
        pass  # in the throughput class


job = asyncio.create_task(bulk())
for word in "how do birds find their way in the dark".split():
    r = await model.embed_with_info(word, traffic="latency")
    print(f"{word:6} waited {r.queue_ms:4.1f} ms")
    await asyncio.sleep(0.2)
job.cancel()

stats = model.stats()
print(f"{stats.seqs} sequences in {stats.steps} steps")
print("steps by size:", dict(sorted(stats.batch_sizes.items())))
`,
  },
  {
    name: "Generate",
    code: `import asyncio
from page import load

model = await load("/artifacts/smollm2/")

questions = [
    "Why is the sky blue?",
    "Name three birds that cannot fly.",
    "What is a volery?",
    "How long is a heron's neck?",
]


async def ask(question):
    messages = [{"role": "user", "content": question}]
    r = await model.chat(messages, max_tokens=40)
    print(f"{question}\\n  {r.text.strip()}")
    print(f"  first token after {r.ttft_ms:.0f} ms\\n")


await asyncio.gather(*map(ask, questions))
print("steps by size:", model.stats().batch_sizes)
`,
  },
  {
    name: "Errors",
    code: `import runtime_py as rt
from page import load

model = await load("/artifacts/minilm/")

for texts, options in [
    (["fine", 7], {}),
    (["much too long " * 200], {"truncate": "error"}),
    (["in no time"], {"deadline_ms": 0.001}),
    (["a"], {"dimensions": 1000}),
]:
    try:
        await model.embed(texts, **options)
    except rt.VoleryError as e:
        print(f"{type(e).__name__}: {e}\\n")
`,
  },
];
