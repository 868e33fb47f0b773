NAMES: tuple[str, ...]

class Meaning: ...

def mean(names: list[str], rest: list[float], span: list[float], low: list[float], high: list[float]) -> Meaning: ...
def apply(
    meaning: Meaning,
    images: int,
    shape: tuple[int, ...],
    out: int,
    columns: list[int],
    sizes: tuple[int, ...],
    fill: int,
    table: int,
    size: int,
    channels_last: bool,
    threads: int,
) -> bool: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str) -> None: ...
