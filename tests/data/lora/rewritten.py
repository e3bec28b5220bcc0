# A stand-in for vllm/v1/metrics/stats.py from 0.11.1 on: the classes that the probes run, with
# the same names and the same behaviour, written for these tests.
from collections import defaultdict

import a_module_that_is_not_there


class LoRAStats:
    def __init__(self):
        self.waiting: set[str] = set()
        self.running: set[str] = set()


class IterationStats:
    def update_from_events(self, req_id: str, events, is_prefilling, req_stats: "int | None",
                           lora_states: "LoRARequestStates", lora_name: str | None):
        from vllm.v1.engine import EngineCoreEventType as Kind

        for event in events:
            if event.type == Kind.SCHEDULED:
                lora_states.request_running(req_id, lora_name)
            else:
                lora_states.request_waiting(req_id, lora_name)


class LoRARequestStates:
    def __init__(self, log_stats: bool = False):
        self.log_stats = log_stats
        self.requests: defaultdict[str, LoRAStats] = defaultdict(LoRAStats)

    def _move(self, req_id, lora_name, *, to=None):
        if not self.log_stats or lora_name is None:
            return
        for name, ids in vars(self.requests[lora_name]).items():
            (ids.add if name == to else ids.discard)(req_id)

    def request_waiting(self, req_id: str, lora_name: str | None):
        self._move(req_id, lora_name, to="waiting")

    def request_running(self, req_id: str, lora_name: str | None):
        self._move(req_id, lora_name, to="running")

    def request_finished(self, req_id: str, lora_name: str | None):
        self._move(req_id, lora_name)

    def update_scheduler_stats(self, scheduler_stats):
        for name, stats in self.requests.items():
            scheduler_stats.waiting_lora_adapters[name] = len(stats.waiting)
            scheduler_stats.running_lora_adapters[name] = len(stats.running)
