// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/template/chat_template.h"
#include "text/template/python/value.h"
#include "text/template/render_meter.h"

namespace reprise {

// Finds how far a rendering is independent of what follows its first messages.
//
// Templates look ahead: they drop the thinking of all turns but the last, put the tools before the
// last user message, close a group of tool results when another role follows. What they look at
// cannot be told from the outside, and tracking which output depends on which message inside the
// interpreter is of no use: a loop over all messages at the start (as in Qwen3) would taint
// everything. So the template is asked: for each cut, the messages before it are rendered once more
// with other continuations (nothing, a user, an assistant, a tool, and combinations of these), and
// the boundary is where the first of them departs from the rendering at hand. Continuations that a
// template refuses are left out. A continuation of the first k+1 messages is also one of the first
// k, so boundaries can only grow with the cut; later cuts tighten earlier ones.
//
// Every probe is paid for from the meter, those that fail, too. When the search has used its share
// it ends with what it has found: first the boundary after the system messages, which most requests
// can share, then those of the last messages.
struct BoundarySearch {
  // Renders other messages with everything else unchanged.
  std::function<Result<std::string>(jinja::Value messages, bool add_generation_prompt)> render;
  RenderMeter* meter = nullptr;
  uint64_t steps_max = 0;  // of the meter's, for this search
  size_t messages_max = 0;
};

std::vector<MessageBoundary> FindBoundaries(const BoundarySearch& search, std::string_view text,
                                            const jinja::Value& messages);

}  // namespace reprise
