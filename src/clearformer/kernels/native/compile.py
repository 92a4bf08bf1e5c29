"""`ops` and `gemm` → machine code, by a process that `code_cache` starts.

Of its own, because the compiler is large and needed once a machine, and what it is told here concerns no one else.
Its time goes to Python that looks at Python, so that two at once, each with a part of the functions, take half of it.
"""

import gc
import os
import sys

PARTS = (
    ("run", "lead", "serve", "linear", "rank", "merge", "quantise"),
    ("scale", "norm", "pick", "attend", "activate", "rotate", "store"),
)
THREADS = ("run", "lead", "serve")  # take a team and the number of a thread; the others are operations


def symbol(function: str) -> str:
    return f"clearformer_{function}"


def target_machine():  # type: ignore[no-untyped-def]
    """This processor, as the compiler sees it."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    features = binding.get_host_cpu_features().flatten()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=features, opt=3, reloc="pic", codemodel="jitdefault", jit=True
    )


def compiled(functions: tuple[str, ...]) -> bytes:
    """Functions of `ops` and `gemm` as an object file, each under its symbol."""
    os.environ["NUMBA_OPT"] = "0"  # everything is optimised at once, below
    gc.disable()  # nothing here is worth collecting before the process ends
    from llvmlite import binding
    from numba import cfunc, types

    from clearformer.kernels.native import gemm, ops

    _only_written()
    pointer = types.CPointer(types.int64)
    whole = binding.parse_assembly("")
    for name in functions:
        takes = (pointer, pointer, *[types.int64] * (1 if name in THREADS else 3))
        given = getattr(ops if hasattr(ops, name) else gemm, name)
        made = cfunc(types.void(*takes), **given.targetoptions)(given.py_func)
        entry = _entry(symbol(name), made.native_name.removeprefix("cfunc."), len(takes))
        whole.link_in(binding.parse_assembly(made.inspect_llvm() + entry))  # what two of them call is there once
    kept = {symbol(name) for name in functions}
    for function in whole.functions:
        if not function.is_declaration and function.name not in kept:
            function.linkage = "internal"  # so that all that is not called goes, error messages among it
    machine = target_machine()
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(whole, builder)
    return machine.emit_object(whole)


def _only_written() -> None:
    """Keep Numba from making each function ready to run in this process, where none is: a sixth of its time."""
    from numba.core.codegen import JITCodeLibrary

    names = ("_finalize_specific", "_ensure_finalized", "get_pointer_to_function")
    if all(hasattr(JITCodeLibrary, name) for name in names):  # another Numba just takes longer
        JITCodeLibrary._finalize_specific = lambda library: None
        JITCodeLibrary.get_pointer_to_function = lambda library, name: library._ensure_finalized() or 1


def _entry(name: str, inner: str, count: int) -> str:
    """A C function around the compiled one, which takes a place for its result and for an exception; it has neither."""
    given = ", ".join(["ptr %job", "ptr %op", "i64 %thread", "i64 %first", "i64 %last"][:count])
    return f"""
define void @{name}({given}) {{
  %result = alloca ptr
  %raised = alloca ptr
  %status = call i32 @{inner}(ptr %result, ptr %raised, {given})
  ret void
}}
"""


def main(part: int) -> None:
    """Write the object file of a part to stdout, and end."""
    sys.stdout.buffer.write(compiled(PARTS[part]))
    sys.stdout.flush()
    os._exit(0)  # to take the compiler apart would take longer than to end
