# A stand-in for vllm/v1/metrics/stats.py as it was from 0.8.0 to 0.11.0: the classes that the
# probes run, with the same names and the same behaviour, written for these tests.
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

import a_module_that_is_not_there
from vllm.v1.a_module_that_is_not_there import Something

if TYPE_CHECKING:
    from vllm.v1.engine.output_processor import RequestState

raise SystemExit("only the classes of this file are to be run")


class Unrelated(Something):
    limit = a_module_that_is_not_there.LIMIT


@dataclass
class LoRAStats:
    waiting_requests: set[str] = field(default_factory=set)
    running_requests: set[str] = field(default_factory=set)


class IterationStats:
    def __init__(self):
        self.iteration_timestamp = time.time()
        self.waiting_lora_adapters: dict[str, int] = {}
        self.running_lora_adapters: dict[str, int] = {}
        self.num_preempted_reqs = 0

    def update_from_events(self, req_id: str, events: "list[Event]", is_prefilling: bool,
                           req_stats: "NotDefined", lora_stats: Optional[LoRAStats]):
        from vllm.v1.engine import EngineCoreEventType as Kind

        for event in events:
            if event.type == Kind.QUEUED and lora_stats is not None:
                req_stats.queued_ts = event.timestamp
                lora_stats.waiting_requests.add(req_id)
            if event.type == Kind.SCHEDULED:
                LoRARequestStates.scheduled_request(lora_stats, req_id)
            if event.type == Kind.PREEMPTED:
                self.num_preempted_reqs += 1
                LoRARequestStates.preempted_request(lora_stats, req_id)


class LoRARequestStates:
    def __init__(self):
        self.lora_name_to_stats: dict[str, LoRAStats] = {}

    def get_stats(self, req_state):
        name = req_state.lora_name
        return None if name is None else self.lora_name_to_stats.setdefault(name, LoRAStats())

    def add_request(self, req_state):
        stats = self.get_stats(req_state)
        if stats is not None:
            stats.waiting_requests.add(req_state.request_id)

    def finish_request(self, req_state: 'RequestState'):
        if req_state.lora_name is None:
            return
        lora_stats = self.lora_name_to_stats[req_state.lora_name]
        lora_stats.running_requests.remove(req_state.request_id)

    def abort_request(self, req_state: 'RequestState'):
        if req_state.lora_name is None:
            return
        for ids in vars(self.lora_name_to_stats[req_state.lora_name]).values():
            ids.discard(req_state.request_id)

    @staticmethod
    def scheduled_request(stats, request_id):
        if stats is not None:
            stats.waiting_requests.remove(request_id)
            stats.running_requests.add(request_id)

    @staticmethod
    def preempted_request(stats, request_id):
        if stats is not None:
            stats.running_requests.remove(request_id)
            stats.waiting_requests.add(request_id)

    def update_iteration_stats(self, iteration_stats):
        for name, stats in self.lora_name_to_stats.items():
            if stats.waiting_requests:
                iteration_stats.waiting_lora_adapters[name] = len(stats.waiting_requests)
            if stats.running_requests:
                iteration_stats.running_lora_adapters[name] = len(stats.running_requests)
