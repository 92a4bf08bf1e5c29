"""The processes that train together: PyTorch's DDP or FSDP2 under torchrun, or one process alone.

Every process sees every batch and takes its share of the rows, so a run is the same for any number of processes.
"""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from clearformer.errors import TrainingError

# for a collective: the others wait while the first one reads the data; a lost process is noticed at once, by its
# closed connection
PATIENCE = timedelta(hours=2)


@dataclass(frozen=True)
class Group:
    rank: int
    size: int
    device: torch.device
    shard: bool

    @classmethod
    def join(cls, device: str, shard: bool) -> "Group":
        """The group that torchrun describes in the environment, or this process alone."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        where = torch.device(device, local) if device == "cuda" else torch.device(device)
        if where.type == "cuda":
            torch.cuda.set_device(where)
        if size > 1 and not dist.is_initialized():
            _meet("nccl" if where.type == "cuda" else "gloo")
        if shard and size == 1:
            raise TrainingError("machine.shard needs many processes; start with torchrun, or leave it out")
        return cls(int(os.environ.get("RANK", "0")) if size > 1 else 0, size, where, shard)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def wrap(self, module: nn.Module, blocks: Iterable[nn.Module]) -> nn.Module:
        """The module, its gradients summed over the group (divided by its size) after each backward."""
        if self.size == 1:
            return module
        if self.shard:
            from torch.distributed.fsdp import fully_shard

            for block in blocks:
                fully_shard(block)
            fully_shard(module)
            return module
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(module, gradient_as_bucket_view=True)

    def sums(self, module: nn.Module, now: bool) -> AbstractContextManager[Any]:
        """Whether the gradients of a backward inside are summed over the group, or wait for the step's last one."""
        if self.size == 1:
            return nullcontext()
        if self.shard:
            module.set_requires_gradient_sync(now)  # type: ignore[operator]
            return nullcontext()
        return nullcontext() if now else module.no_sync()  # type: ignore[operator]

    def share(self, batch: Any) -> Any:
        """This process's rows. A batch of fewer rows than processes gives the last ones a row that does not count."""
        if self.size == 1:
            return batch
        rows = slice(self.rank, None, self.size)
        return type(batch)(*(part[rows] for part in batch)) if self.rank < len(batch[0]) else batch.nothing()

    def total(self, *numbers: float) -> list[float]:
        """The sums over all processes."""
        if self.size == 1:
            return list(numbers)
        found = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(found)
        return found.tolist()

    def largest(self, number: float) -> float:
        """The largest of what the processes say, to all."""
        if self.size == 1:
            return number
        found = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return float(found)

    def wait(self) -> None:
        """A barrier: until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def tell(self, number: float) -> float:
        """What the first process says, to all."""
        return self.total(number if self.first else 0.0)[0]

    def leave(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def _meet(backend: str) -> None:
    """Join the others. torchrun's store outlives a restart, with the addresses of the dead: each attempt has its own
    keys. (Of several machines each counts its restarts alone; there the keys are PyTorch's.)"""
    store, rank, size = next(iter(rendezvous("env://", timeout=PATIENCE)))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if os.environ.get("GROUP_WORLD_SIZE") == "1" else "0"
    store = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, on the CPU; every process of a sharded run must ask."""
    found = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found.detach().cpu()


def fill(tensor: Tensor, content: Tensor) -> None:
    """Write all of `content` into a tensor, or this process's shard of it."""
    if hasattr(tensor, "full_tensor"):
        from torch.distributed.tensor import distribute_tensor  # it takes a second, which a process alone saves

        content = distribute_tensor(content.to(tensor.device), tensor.device_mesh, tensor.placements)  # type: ignore[attr-defined]
    with torch.no_grad():
        tensor.copy_(content)
