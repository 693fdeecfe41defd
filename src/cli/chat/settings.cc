// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace reprise::cli {
namespace {

constexpr int kTokensMax = 1 << 20;

struct Setting {
  const char* name;
  float SamplingParams::*number;
};
constexpr Setting kNumbers[] = {{"temperature", &SamplingParams::temperature},
                                {"top_p", &SamplingParams::top_p},
                                {"min_p", &SamplingParams::min_p},
                                {"repetition_penalty", &SamplingParams::repetition_penalty},
                                {"presence_penalty", &SamplingParams::presence_penalty},
                                {"frequency_penalty", &SamplingParams::frequency_penalty}};

template <typename T>
bool Parse(const std::string& text, T* value) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && at == end;
}

Status Wrong(const std::string& name, const std::string& value) {
  return InvalidArgument("'" + value + "' is not a value of " + name);
}

}  // namespace

std::string DescribeSettings(const Session::Options& options) {
  std::string text;
  for (const Setting& setting : kNumbers) {
    text += fmt::format("  {:<19} {:g}\n", setting.name, options.sampling.*setting.number);
  }
  text += fmt::format("  {:<19} {}\n", "top_k", options.sampling.top_k);
  text += fmt::format("  {:<19} {}\n", "seed", options.sampling.seed);
  text += fmt::format(
      "  {:<19} {}\n", "max_tokens",
      options.max_tokens > 0 ? std::to_string(options.max_tokens) : "0 (what the context leaves)");
  return text;
}

Status ChangeSetting(const std::string& given, const std::string& value, int64_t vocab_size,
                     Session::Options* options) {
  std::string name = given;
  std::replace(name.begin(), name.end(), '-', '_');
  if (name == "max_tokens") {
    int tokens = 0;
    if (!Parse(value, &tokens) || tokens < 0 || tokens > kTokensMax) return Wrong(name, value);
    options->max_tokens = tokens;
    return OkStatus();
  }
  SamplingParams changed = options->sampling;
  bool parsed = false, known = true;
  const auto setting = std::find_if(std::begin(kNumbers), std::end(kNumbers),
                                    [&](const Setting& one) { return name == one.name; });
  if (setting != std::end(kNumbers)) {
    parsed = Parse(value, &(changed.*setting->number));
  } else if (name == "top_k") {
    parsed = Parse(value, &changed.top_k);
  } else if (name == "seed") {
    parsed = Parse(value, &changed.seed);
  } else {
    known = false;
  }
  if (!known) return InvalidArgument("there is no setting '" + given + "'; /set lists them");
  if (!parsed) return Wrong(name, value);
  REPRISE_TRY(Validate(changed, vocab_size));
  options->sampling = changed;
  return OkStatus();
}

}  // namespace reprise::cli
