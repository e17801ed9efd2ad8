"""The CPU as a platform of verl: the device interface that its FSDP engine needs, with gloo for communication.

The engine itself is device-independent. Ray's resource is still called "GPU"; here it means a slot, of which there are
`ray_init.num_gpus`: one process and one data-parallel rank per slot.
"""

import os
import types
from contextlib import contextmanager

import torch


class _Device(types.ModuleType):
    """torch.cpu with the functions for memory and random numbers that verl expects of torch.cuda."""

    def __getattr__(self, name):
        return getattr(torch.cpu, name)

    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: torch.device("cpu"))
    get_device_name = staticmethod(lambda *_: "cpu")
    get_rng_state = staticmethod(lambda *_: torch.get_rng_state())
    set_rng_state = staticmethod(lambda state, *_: torch.set_rng_state(state))
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    set_device = synchronize = empty_cache = ipc_collect = reset_peak_memory_stats = staticmethod(lambda *_: None)
    memory_allocated = memory_reserved = staticmethod(lambda *_: 0)
    max_memory_allocated = max_memory_reserved = staticmethod(lambda *_: 0)

    @staticmethod
    def mem_get_info(*_):
        import psutil

        memory = psutil.virtual_memory()
        return memory.available, memory.total


def register_platform() -> None:
    """Register `VERL_PLATFORM=cpu`, and adapt two functions that assume an accelerator."""
    from verl.plugin.platform import PlatformBase, PlatformRegistry

    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")  # the key under which verl registers its FSDP engine

    @PlatformRegistry.register(platform="cpu")
    class PlatformCPU(PlatformBase):
        device_name = vendor_name = "cpu"
        device_module = _Device("repro_cpu_device")

        def is_available(self):
            return True

        def current_device(self):
            return torch.device("cpu")

        def device_count(self):
            return 1

        def manual_seed(self, seed):
            torch.manual_seed(seed)

        manual_seed_all = manual_seed

        def _nothing(self, *_, **__):
            return None

        set_device = synchronize = set_allocator_settings = empty_cache = _nothing
        profiler_start = profiler_stop = cudart = _nothing

        def get_device_capability(self, device_index=0):
            return None, None

        def communication_backend_name(self):
            return "gloo"

        def visible_devices_envvar(self):
            return "CUDA_VISIBLE_DEVICES"

        @contextmanager
        def nvtx_range(self, msg):
            yield

        def ray_resource_name(self):
            return "GPU"

        def ray_noset_envvars(self):
            return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

        def is_ipc_supported(self):
            return False

    _plain_gloo()
    _no_pinned_memory()


def _plain_gloo() -> None:
    """verl requests the backend "cpu:gloo,<device>:<its own>", which torch rejects if the device is the CPU."""
    from verl.utils import distributed

    original = distributed.initialize_global_process_group_ray

    def initialize(timeout_second=None, backend=None):
        return original(timeout_second=timeout_second, backend=backend or "gloo")

    distributed.initialize_global_process_group_ray = initialize


def _no_pinned_memory() -> None:
    """The reference policy is built with pinned memory, which only an accelerator has."""
    from torch.distributed import fsdp

    class Unpinned(fsdp.CPUOffloadPolicy):
        def __init__(self, pin_memory: bool = False):
            super().__init__(pin_memory=False)

    fsdp.CPUOffloadPolicy = Unpinned
