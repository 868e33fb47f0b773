"""Compile every Triton kernel for a Hopper GPU, without a GPU, and check the result. Run by test_cuda.py."""

import re

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from outspan.transforms.kernels.cuda.decode import decode
from outspan.transforms.kernels.cuda.device import finish
from outspan.transforms.kernels.cuda.resize import do_resizes
from outspan.transforms.kernels.cuda.steps import do_step
from outspan.transforms.kernels.cuda.tables import make_tables

BYTES = dict.fromkeys(("images", "work", "tables"), "*u8")
INTEGERS = dict.fromkeys(("definitions", "ops", "levels", "partners", "places", "source", "table", "fill", "chosen"), "*i32")
ONES = ("height", "width", "blocks")  # Triton makes an argument that is 1 a constant


def compile_for_hopper(kernel: triton.JITFunction, constants: dict[str, int], number: str = "*u8") -> str:
    """Return the PTX of a kernel for these constants; `number` is the type of its output."""
    pointers = {**BYTES, **INTEGERS, "values": number, "out": number}
    signature = {name: "constexpr" if name in constants else pointers.get(name, "i32") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, {(kernel.arg_names.index(name),): value for name, value in constants.items()})
    options = {"num_warps": 4, "enable_fp_fusion": False}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]


def main() -> None:
    """Compile for both numbers of channels, for images of one pixel, and for every type of output."""
    texts = []
    for channels, block, ones in ((3, 1024, ()), (1, 512, ()), (3, 128, ONES)):
        for kernel in (make_tables, do_step, do_resizes):
            constants = dict.fromkeys((name for name in ones if name in kernel.arg_names), 1)
            texts.append(compile_for_hopper(kernel, {"CHANNELS": channels, "BLOCK": block, **constants}))
        for number in ("*u8", "*i16"):
            how = {"NORMALIZED": number != "*u8", "CHANNELS_LAST": number != "*u8"}
            constants = dict.fromkeys(ones, 1)
            texts.append(compile_for_hopper(finish, {"CHANNELS": channels, "BLOCK": block, **how, **constants}, number))
    for ones in ({}, {"height": 1, "width": 1}):
        texts.append(compile_for_hopper(decode, {"BLOCK": 64, **ones}))
    how = {"NORMALIZED": True, "CHANNELS_LAST": False}
    texts.append(compile_for_hopper(finish, {"CHANNELS": 3, "BLOCK": 1024, **how}, "*i32"))
    for text in texts:
        assert not re.search(r"\bfma\.rn|\bdiv\.(full|approx)", text), "a blend would round once instead of twice"
    print(f"{len(texts)} kernels")


if __name__ == "__main__":
    main()
