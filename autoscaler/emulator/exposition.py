"""The text of ``/metrics``, in the form that the Prometheus client library of the engine writes."""

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.utils import floatToGoString

from autoscaler.emulator.accounts import Accounts
from autoscaler.emulator.families import CACHE_CONFIG, CACHE_CONFIG_HELP, FAMILIES, Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def page(accounts: Accounts, model: str) -> str:
    """The ``vllm:`` part of the page.

    Args:
        accounts: what is exported.
        model: served model name.
    """
    lines: list[str] = []
    for family in FAMILIES:
        lines += _family(family, accounts, model)
    lines += _head("vllm:cache_config_info", CACHE_CONFIG_HELP, "gauge")
    for engine in range(accounts.engines):
        labels = _labels(**CACHE_CONFIG, engine=str(engine))
        lines.append(f"vllm:cache_config_info{labels} 1.0")
    return "\n".join(lines) + "\n"


def _family(family: Family, accounts: Accounts, model: str) -> Iterator[str]:
    name = f"vllm:{family.name}"
    if family.kind == "histogram":
        yield from _head(name, family.help, "histogram")
        yield from _distribution(family, accounts, model)
    else:
        exported = f"{name}_total" if family.kind == "counter" else name
        rows = (accounts.counters if family.kind == "counter" else accounts.gauges)[family.name]
        yield from _head(exported, family.help, family.kind)
        for value, row in zip(family.values, rows, strict=True):
            for engine in range(accounts.engines):
                labels = _series(family, value, engine, model)
                yield f"{exported}{labels} {_number(row[engine])}"
    if family.kind == "gauge":
        return
    yield from _head(f"{name}_created", family.help, "gauge")
    created = _number(accounts.created_s)
    for value in family.values:
        for engine in range(accounts.engines):
            yield f"{name}_created{_series(family, value, engine, model)} {created}"


def _distribution(family: Family, accounts: Accounts, model: str) -> Iterator[str]:
    name = f"vllm:{family.name}"
    held = accounts.distributions[family.name]
    bounds = [_number(bound) for bound in (*held.bounds, float("inf"))]
    for engine in range(accounts.engines):
        running = list(accumulate(held.counts[engine].tolist()))
        for bound, count in zip(bounds, running, strict=True):
            labels = f'{{engine="{engine}",le="{bound}",model_name="{_quoted(model)}"}}'
            yield f"{name}_bucket{labels} {_number(count)}"
        labels = f'{{engine="{engine}",model_name="{_quoted(model)}"}}'
        yield f"{name}_count{labels} {_number(running[-1])}"
        yield f"{name}_sum{labels} {_number(held.sums[engine])}"


def _head(name: str, help_text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"


def _series(family: Family, value: str, engine: int, model: str) -> str:
    if not family.label:
        return f'{{engine="{engine}",model_name="{_quoted(model)}"}}'
    return _labels(**{"engine": str(engine), "model_name": model, family.label: value})


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{k}="{_quoted(v)}"' for k, v in sorted(labels.items())) + "}"


def _quoted(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]  # the library has no types
    return text
