"""Validating a plan contract at its limits: 64 steps, 16 deep, every layer needing the one before.

The plan is read from its wire form, so no schema is the very object that the validator holds: all
128 are compared by what they say. The capabilities are the tools of the travel world.
"""

from __future__ import annotations

from typing import Any

from measure import Row, clock, found_in, interleaved, medians, report

get_environment = found_in("get_environment", "environments.named", "environments")
PlanCodec = found_in("PlanCodec", "plans.contract.codec", "plans.codec")
PlanCapability, PlanSpec, PlanStep = (
    found_in(name, "plans.contract.spec", "plans.spec")
    for name in ("PlanCapability", "PlanSpec", "PlanStep")
)
PlanValidator = found_in("PlanValidator", "plans.contract.validator", "plans.validator")

STEPS, DEPTH, LIMIT = 64, 16, 5.0
REPETITIONS, CALLS = 7, 50
CODEC = PlanCodec()


def largest(capabilities: list[Any]) -> Any:
    width = STEPS // DEPTH
    steps = []
    for i in range(STEPS):
        used, layer = capabilities[i % len(capabilities)], i // width
        before = range((layer - 1) * width, layer * width) if layer else ()
        steps.append(
            PlanStep(
                step_id=f"step-{i}", objective="Do it.", completion_criteria="It is done.",
                dependencies=tuple(f"step-{b}" for b in before),
                execution_target=used.execution_target, input_schema=used.input_schema,
                output_schema=used.output_schema,
            )
        )  # fmt: skip
    return PlanSpec(revision=1, objective="Everything.", steps=tuple(reversed(steps)))


def rows() -> list[Row]:
    tools = get_environment("travel").tools()
    capabilities = [PlanCapability.tool(t, t.returns) for t in tools]
    validator = PlanValidator(capabilities, STEPS, DEPTH)
    text = CODEC.encode(largest(capabilities))
    spec = CODEC.decode(text)

    def milliseconds(program) -> float:
        started = clock()
        for _ in range(CALLS):
            program()
        return (clock() - started) / CALLS * 1e3

    found = medians(
        interleaved(
            {
                "validate": lambda: milliseconds(lambda: validator.validate_generated(spec)),
                "decode": lambda: milliseconds(lambda: CODEC.decode(text)),
                "encode": lambda: milliseconds(lambda: CODEC.encode(spec)),
            },
            REPETITIONS,
        )
    )
    ours = found["validate"]
    return [
        Row(f"validate a contract of {STEPS} steps", ours, "ms", LIMIT, "limit", "≤ 5 ms",
            ours <= LIMIT),
        Row(f"... decode it, {len(text) // 1000} kB", found["decode"], "ms"),
        Row("... encode it", found["encode"], "ms"),
    ]  # fmt: skip


if __name__ == "__main__":
    report(rows())
