// Threads that wait between calls, since starting one costs more than a small sweep.
#pragma once

#include <cstdint>
#include <functional>

namespace fae::cpu {

// Calls body(thread) once on each of `threads` threads, the caller's being thread 0, and returns
// when all are done. Where the waiting threads are busy with another caller's work, bodies run one
// after another on the caller's thread: a body must not wait for another one.
void run_on_threads(std::int32_t threads, const std::function<void(std::int32_t)>& body);

}  // namespace fae::cpu
