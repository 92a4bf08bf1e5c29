"""`program` → machine code, as a process of its own: `python -m clearformer.kernels.native.compile > code.o`.

Its own because the compiler is large and needed once a machine, and because what it is told here concerns no one else.
"""

import gc
import os
import sys

NAME = "clearformer_run"


def target_machine():  # type: ignore[no-untyped-def]
    """This processor, as the compiler sees it."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    features = binding.get_host_cpu_features().flatten()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=features, opt=3, reloc="pic", codemodel="jitdefault", jit=True
    )


def compiled() -> bytes:
    """The code of `program.run` as an object file with one function, NAME(job)."""
    os.environ["NUMBA_OPT"] = "0"  # everything is optimised at once, below
    gc.disable()  # a second and a half of making small objects
    from llvmlite import binding
    from numba import cfunc, types

    from clearformer.kernels.native import program

    made = cfunc(types.void(types.CPointer(types.int64)), **program.plain)(program.run.py_func)
    inner = made.native_name.removeprefix("cfunc.")
    text = made.inspect_llvm() + _entry(inner)
    module = binding.parse_assembly(text)
    for function in module.functions:
        if not function.is_declaration and function.name != NAME:
            function.linkage = "internal"  # so that all that is not called goes, error messages among it
    machine = target_machine()
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


def _entry(inner: str) -> str:
    """A C function around the compiled one, which takes a place for its result and for an exception; it has neither."""
    return f"""
define void @{NAME}(ptr %job) {{
  %result = alloca ptr
  %raised = alloca ptr
  %status = call i32 @{inner}(ptr %result, ptr %raised, ptr %job)
  ret void
}}
"""


if __name__ == "__main__":
    sys.stdout.buffer.write(compiled())
