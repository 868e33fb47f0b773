"""Published policy files: the values of the original code, computed by hand, and invalid files."""

import json
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import magnitudes
from outspan import Plain, rng
from outspan.config import Recipe
from outspan.data.sets import load
from outspan.policies.drawing import draw
from outspan.policies.files import FAST_AUTOAUGMENT_LEVELS, PBA_LEVELS, fast_autoaugment, pba
from outspan.policies.table import build_policy
from outspan.transforms.normalize import Normalize


def write(path, value) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def test_levels_of_fast_autoaugment_are_fractions_of_its_ranges(tmp_path):
    """The fraction l of [low, high] is low + l (high - low). Geometric levels have a random sign. Bits are rounded down."""
    pairs = [
        [["ShearX", 1.0, 0.9], ["TranslateY", 1.0, 0.0]],
        [["Rotate", 1.0, 0.25], ["Solarize", 1.0, 0.25]],
        [["Posterize", 1.0, 0.7], ["Contrast", 1.0, 0.0]],
        [["Cutout", 1.0, 0.5], ["Sharpness", 1.0, 1.0]],
        [["Invert", 1.0, 0.3], ["Posterize", 1.0, 1.0]],
    ]
    result = magnitudes(fast_autoaugment(write(tmp_path / "p.json", pairs))(4000, rng=rng.generator(0)))
    assert result == {
        "shear_x": {0.24, -0.24},
        "translate_y": {0.45, -0.45},
        "rotate": {15.0, -15.0},
        "solarize": {64.0},
        "posterize": {6.0, 8.0},  # 4 + 4·0.7 = 6.8 bits
        "contrast": {0.1},
        "sharpness": {1.9},
        "cutout": {0.1},
        "invert": {0.0},
    }


def test_fast_autoaugment_draws_one_pair_per_image_with_its_probabilities(tmp_path):
    pairs = [[["Invert", 0.25, 0.5], ["Equalize", 1.0, 0.5]], [["AutoContrast", 1.0, 0.5], ["Color", 0.0, 0.5]]]
    plan = fast_autoaugment(write(tmp_path / "p.json", pairs))(20_000, rng=rng.generator(0))
    kinds = Counter(tuple(plan.names[op] if op >= 0 else "" for op in row) for row in plan.ops.tolist())
    assert set(kinds) == {("invert", "equalize"), ("", "equalize"), ("auto_contrast", "")}
    assert kinds["auto_contrast", ""] == pytest.approx(10_000, abs=5 * 71)
    assert kinds["invert", "equalize"] == pytest.approx(2500, abs=5 * 47)


def test_a_list_is_read_from_json_from_python_and_from_published_code(tmp_path):
    literal = "[[('Invert', 1.0, 0.5), ('Rotate', 0.5, 1.0)]]"
    code = f"import nothing\n\ndef first():\n    return None\n\ndef fa_reduced():\n    p = {literal}\n    return p\n"
    files = [
        write(tmp_path / "a.json", [[["Invert", 1.0, 0.5], ["Rotate", 0.5, 1.0]]]),
        write(tmp_path / "b.txt", literal),
        write(tmp_path / "c.py", code) + "#fa_reduced",
    ]
    plans = [fast_autoaugment(file)(50, rng=rng.generator(0)).to_json() for file in files]
    assert plans[0] == plans[1] == plans[2]


def test_a_path_may_contain_a_hash_and_a_file_may_have_a_byte_order_mark(tmp_path):
    pairs = [[["Invert", 1.0, 0.5], ["Rotate", 0.5, 1.0]]]
    (tmp_path / "a#b").mkdir()
    code = f"\ufeffdef fa_reduced():\n    return {pairs}\n"
    files = [write(tmp_path / "a#b" / "good.json", pairs), write(tmp_path / "list#one", pairs)]
    files.append(write(tmp_path / "a#b" / "c.py", code) + "#fa_reduced")
    plans = [fast_autoaugment(file)(50, rng=rng.generator(0)).to_json() for file in files]
    assert plans[0] == plans[1] == plans[2]
    numbers = policy(invert=(10, 0))
    assert schedule(tmp_path / "a#b" / "s", ["\ufeff" + change(numbers, numbers, epoch=1)]).ends == (1,)


def test_a_function_with_several_lists_is_read(tmp_path):
    """The published archive.py writes its first policy as a sum of several named lists."""
    one, two, three = ([[[name, 1.0, 0.5], [name, 0.5, 1.0]]] for name in ("Invert", "Rotate", "Color"))
    code = f"def fa_reduced():\n    'Policies.'\n    a = {one}\n    b = {two}\n    c = a + b\n    return c + {three} + a\n"
    summed, whole = write(tmp_path / "c.py", code) + "#fa_reduced", write(tmp_path / "a.json", [*one, *two, *three, *one])
    plans = [fast_autoaugment(file)(200, rng=rng.generator(0)).to_json() for file in (summed, whole)]
    assert plans[0] == plans[1]


def test_a_function_with_too_long_lists_is_refused_with_its_line(tmp_path):
    """Sixty lines that double a list give 2**60 pairs. Many sums of a long list are also too long."""
    pair = [["Invert", 1, 1], ["Rotate", 1, 1]]
    doubled = "".join(f"    p{i + 1} = p{i} + p{i}\n" for i in range(60))
    summed = f"    p1 = p0{' + p0' * 90}\n" + "".join(f"    p{i + 1} = p{i} + p1\n" for i in range(1, 600))
    for lines, final, at in ((doubled, 60, 18), (summed, 600, 49)):
        code = write(tmp_path / "c.py", f"def fa_reduced():\n    p0 = {[pair]}\n{lines}    return p{final}\n")
        with pytest.raises(ValueError, match=rf"c.py, line {at}: not a policy file: the lists have more than 100,000 elements"):
            fast_autoaugment(f"{code}#fa_reduced")
    once = write(tmp_path / "c.py", f"def fa_reduced():\n    p0 = {[pair]}\n    return p0{' + p0' * 90}\n")
    assert len(fast_autoaugment(f"{once}#fa_reduced")(3, rng=rng.generator(0))) == 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("p = [1]\n    p.extend([2])\n    return p", "line 4: fa_reduced may name lists and return .*, got 'p.extend"),
        ("p = [1]\n    p += [2]\n    return p", r"line 4: .* got 'p \+= \[2\]'"),
        ("p = [1]\n    if p:\n        p = [2]\n    return p", "line 4: .* got 'if p:"),
        ("p = [1]\n    return p + q", "line 4: expected a list or a sum of named lists, got 'q'"),
        ("p = [1]\n    return 2 * p", r"line 4: expected .*, got '2 \* p'"),
        ("return", "line 3: fa_reduced may name lists"),
        ("p = [1]", "line 2: fa_reduced returns no list"),
    ],
)
def test_a_function_with_other_statements_is_refused_with_its_line(body, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        fast_autoaugment(write(tmp_path / "c.py", f"\ndef fa_reduced():\n    {body}\n") + "#fa_reduced")
    with pytest.raises(ValueError, match=r"line 1: fa_reduced may name lists .* got 'mapped'"):
        fast_autoaugment(write(tmp_path / "c.py", f"@mapped\ndef fa_reduced():\n    {body}\n") + "#fa_reduced")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[\n[["Invert", 0.5, 0.5]]\n]', "line 2: a pair has 2 operations, got 1"),
        ('[\n[["Invert", 0.5, 0.5],\n["Rotat", 0.5, 0.5]]\n]', "line 3: unknown operation 'Rotat', did you mean 'Rotate'"),
        ('[[["Invert", 1.5, 0.5], ["Invert", 0.5, 0.5]]]', r"line 1: the probability of Invert .* \[0, 1\], got 1.5"),
        ('[[["Invert", 1, -0.5], ["Invert", 0.5, 0.5]]]', r"line 1: the level of Invert must be a number .* got -0.5"),
        ('[[["Invert", 1, null], ["Invert", 0.5, 0.5]]]', "line 1: expected a name or a number, got 'null'"),
        ('[[["Invert", 1], ["Invert", 0.5, 0.5]]]', r"line 1: an operation is \[name, probability, level\], got 2 parts"),
        ('[[[1, 1, 1], ["Invert", 0.5, 0.5]]]', "line 1: an operation begins with its name, got 1"),
        ("[", r"line 1: not a Python or JSON list"),
        ("[]", "line 1: the list is empty"),
        ("{}", "line 1: expected a list of pairs"),
        ("def fa_reduced():\n    return 1\n", r"is Python code: choose a function with FILE#NAME \(known: fa_reduced\)"),
        ("[]\n[]\n", r"line 2: expected one list of pairs and nothing else"),
        ("pairs = []\n", r"line 1: expected one list of pairs and nothing else"),
        ("['9', '8', 11, 12, [0], [0]]\n['9', '8', 11, 12, [0], [0]]", "line 2: expected one list of pairs and nothing else"),
        ("\0", "not a Python or JSON list"),
        ("(" * 5000, "not a Python or JSON list"),
        ("[[[" + "-" * 900 + "'a', 1, 1], ['Invert', 1, 1]]]", "not a Python or JSON list|nested too deeply|expected a name"),
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
    ],
)
def test_invalid_files_of_fast_autoaugment_are_refused_with_their_line(text, message, tmp_path):
    with pytest.raises(ValueError, match=message) as raised:
        fast_autoaugment(write(tmp_path / "p", text))
    assert str(tmp_path / "p") in str(raised.value)


def test_a_missing_function_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"c\.py: unknown function 'fa_reduce', did you mean 'fa_reduced'"):
        fast_autoaugment(write(tmp_path / "c.py", "def fa_reduced():\n    return []\n") + "#fa_reduce")
    with pytest.raises(ValueError, match=r"p\.json: has no function 'fa_reduced', only a list: leave out the #fa_reduced"):
        fast_autoaugment(write(tmp_path / "p.json", "[]") + "#fa_reduced")


def policy(**numbers: tuple[int, int]) -> list[int]:
    """Return the numbers of a policy: probability and magnitude, each of 10, at the first place of a transform, else 0."""
    return [number for name in PBA_LEVELS for number in numbers.get(name, (0, 0))] + [0] * 30


def change(before, after, *, epoch, trial="1", clone="1") -> str:
    return repr([trial, clone, epoch, epoch, before, after])


def schedule(path, lines, **run: int):
    return pba(write(path, "\n".join(lines) + "\n"), **{"searched": 10, "epochs": 10, "epoch_steps": 1, **run})


def test_magnitudes_of_pba_are_tenths_of_its_ranges(tmp_path):
    numbers = policy(rotate=(10, 7), solarize=(10, 3), translate_x=(10, 9), color=(10, 2), cutout=(10, 4), posterize=(10, 6))
    result = magnitudes(schedule(tmp_path / "s", [change(numbers, numbers, epoch=1)]).at(0)(9000, rng=rng.generator(0)))
    del result["identity"]
    assert result == {
        "rotate": {21.0, -21.0},
        "solarize": {256.0 - 76},
        "translate_x": {0.2812, -0.2812},  # 9 of 32 pixels
        "color": {0.46},  # 0.1 + 1.8·0.2
        "cutout": {0.25},  # 8 of 32 pixels
        "posterize": {2.0},
    }
    most = policy(posterize=(10, 10))
    result = magnitudes(schedule(tmp_path / "most", [change(most, most, epoch=1)]).at(0)(900, rng=rng.generator(0)))
    assert result["posterize"] == {0.0}  # no bits are left


def test_pba_applies_up_to_two_transforms_in_random_order(tmp_path):
    sure = policy(invert=(10, 0), equalize=(10, 0), auto_contrast=(10, 0))
    plan = schedule(tmp_path / "s", [change(sure, sure, epoch=1)]).at(0)(20_000, rng=rng.generator(0))
    idle = plan.names.index("identity")
    counts = Counter((row != idle).sum().item() for row in plan.ops)
    for count, fraction in ((0, 0.2), (1, 0.3), (2, 0.5)):
        assert counts[count] / 20_000 == pytest.approx(fraction, abs=0.02)
    pairs = Counter(tuple(row) for row in plan.ops.tolist() if idle not in row)
    assert len(pairs) == 6  # both orders of three pairs
    assert max(pairs.values()) < 1.2 * min(pairs.values())
    rare = policy(invert=(3, 0))
    plan = schedule(tmp_path / "s", [change(rare, rare, epoch=1)]).at(0)(20_000, rng=rng.generator(0))
    assert (plan.ops == plan.names.index("invert")).double().sum() / 20_000 == pytest.approx(0.8 * 0.3, abs=0.02)


def test_a_schedule_is_stretched_over_the_run(tmp_path):
    """A search of 10 epochs changed the policy at 2 and 5. In 20 epochs of 3 steps this is at steps 12 and 30."""
    one, two, three = policy(invert=(10, 0)), policy(equalize=(10, 0)), policy(smooth=(0, 0), cutout=(10, 5))
    lines = [change(one, two, epoch=2), change({"hp_policy": two}, {"hp_policy": three}, epoch=5)]
    result = schedule(tmp_path / "s", lines, epochs=20, epoch_steps=3)
    assert result.ends == (12, 30)

    def used(step: int) -> set[str]:
        plan = draw(result, "none", 200, seed=0, step=step)
        return {plan.names[op] for op in plan.ops.unique().tolist()} - {"identity"}

    expected = {0: "invert", 11: "invert", 12: "equalize", 29: "equalize", 30: "cutout", 10_000: "cutout"}
    assert {step: used(step) for step in expected} == {step: {name} for step, name in expected.items()}


def test_lines_of_other_trials_at_the_start_of_a_log_are_ignored(tmp_path):
    one, two = policy(invert=(10, 0)), policy(equalize=(10, 0))
    lines = [change(two, two, epoch=9, trial="7", clone="3"), change(one, two, epoch=4, trial="1", clone="2")]
    assert schedule(tmp_path / "s", lines).ends == (4,)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["nothing"], "line 1: must be a Python list"),
        ([change(policy(), policy(), epoch=1), "[1, 2]"], r"line 2: must be \[trial, clone.*, got 2 parts"),
        ([change([1, 2], policy(), epoch=1)], "line 1: a policy must be 60 whole numbers, got 2 numbers"),
        ([change({"lr": 1}, policy(), epoch=1)], "line 1: a policy must be 60 whole numbers, got {'lr': 1}"),
        ([change([11] * 60, policy(), epoch=1)], "line 1: .* whole numbers from 0 to 10, got 11"),
        ([change(policy(), policy(), epoch="1")], "line 1: the clone's epoch must be a whole number, got '1'"),
        (
            [change(policy(), policy(), epoch=5), change(policy(), policy(), epoch=4)],
            r"line 2: the epoch must lie in \[5, 10\]",
        ),
        ([change(policy(), policy(), epoch=11)], r"line 1: the epoch must lie in \[0, 10\].* got 11"),
        ([""], "no lines"),
    ],
)
def test_invalid_pba_schedules_are_refused_with_their_line(lines, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        schedule(tmp_path / "s", lines)


@pytest.mark.parametrize("read", [fast_autoaugment, lambda file: pba(file, searched=10, epochs=10, epoch_steps=1)])
def test_files_that_are_not_text_are_refused(read, tmp_path):
    for data, message in ((b"\xff\xfe\x00", "not UTF-8 text"), (b" " * (2 << 20), "more than 1,048,576 bytes")):
        (tmp_path / "p").write_bytes(data)
        with pytest.raises(ValueError, match=message):
            read(str(tmp_path / "p"))
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ValueError, match=r"No such file|directory"):
            read(str(path))


@given(text=st.text(max_size=60))
def test_any_text_gives_a_policy_or_a_value_error(text, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_text(text, encoding="utf-8", errors="replace", newline="")
    for read in (fast_autoaugment, lambda file: pba(file, searched=10, epochs=10, epoch_steps=1)):
        with pytest.raises(ValueError, match="any"):
            read(str(path))


def test_only_policies_that_read_a_file_accept_policy_file(tmp_path):
    data, normalize = load("digits"), Normalize((0.5,), (0.2,))

    def build(**values: str):
        return build_policy(Recipe(model="mlp", **values), torch.nn.Identity(), data, normalize)

    file = write(tmp_path / "p.json", [[["Invert", 1.0, 0.5], ["Rotate", 0.5, 1.0]]])
    assert isinstance(build(policy="fastautoaugment", policy_file=file), Plain)
    with pytest.raises(ValueError, match="policy 'pba' needs policy_file"):
        build(policy="pba")
    with pytest.raises(ValueError, match="policy_file is for fastautoaugment and pba, got it with policy 'random'"):
        build(policy="random", policy_file=file)


def test_every_level_of_both_formats_is_valid_for_the_transforms(tmp_path):
    fractions = [k / 20 for k in range(21)]
    pairs = [[[name, 1, fraction], [name, 1, 1 - fraction]] for name in FAST_AUTOAUGMENT_LEVELS for fraction in fractions]
    fast_autoaugment(write(tmp_path / "p.json", pairs))
    for magnitude in range(11):
        numbers = [10, magnitude] * 30
        schedule(tmp_path / "s", [change(numbers, numbers, epoch=1)])
