"""Mutants of tenants that are in each other's way. See mutants.py."""

CACHE = [("cache_test", "src/cache/cache_test")]
SCHED = [("sched_test", "src/sched/sched_test")]
ENGINE = [("engine_test", "tests/engine_test")]

MUTANTS = [
    ("a_crowd_stands_aside_for_nobody", "src/sched/scheduler.cc",
     "stood_aside_ = crowded && CrowdStandsAside(runnables);", "stood_aside_ = false;", SCHED),
    ("a_crowd_stands_aside_for_ever", "src/sched/scheduler.cc",
     "return !stood_aside_ && std::any_of(prompts_", "return std::any_of(prompts_",
     SCHED),
    ("a_crowd_fills_steps", "src/sched/scheduler.cc",
     "constexpr double kCrowdSlowDown = 3;", "constexpr double kCrowdSlowDown = 300;",
     SCHED),
    ("who_has_left_is_far", "src/engine/roster.cc",
     "constexpr int64_t kLatelyMs = 10'000;", "constexpr int64_t kLatelyMs = 0;", ENGINE),
    ("spared_inner_nodes_go", "src/cache/index/keep/worth.cc",
     "    order_[id].snapshot.valid() ? Rekey(id) : UpdateTail(order_[id].node);", "    Rekey(id);", CACHE),
]
