// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/adapters/adapter_shelf.h"
#include "engine/request.h"
#include "text/chat_prompt.h"
#include "text/output/call_writer.h"
#include "text/output/output_format.h"
#include "text/output/thinking.h"
#include "text/template/chat_template.h"
#include "text/template/system_shape.h"
#include "text/tokenizer.h"

namespace reprise::api {

// What lists of models show of one, whether its weights are in memory or not.
struct ModelBrief {
  std::string id;                    // as clients name it
  std::vector<std::string> aliases;  // other names for it; in one, '*' stands for any text
  int64_t created = 0;               // seconds since 1970
  // Known once it was loaded; else empty or 0:
  std::string family;
  std::string digest;
  int32_t context_tokens = 0;
  uint64_t bytes = 0;  // its weights in memory, as far as is known
  int64_t parameter_count = 0;
  std::string quantization;               // the type of most of its weights: "Q4_K"
  std::vector<std::string> capabilities;  // in Ollama's words
  std::string status = "loaded";          // unloaded, loading, loaded, sleeping, failed
  std::string error;                      // of the last try to load it
  std::vector<std::string> adapters;      // that it is served with, by name

  // Whether a request for `name` means this model, or an adapter of it. Without a name it does.
  bool Answers(std::string_view name) const;
  // The id and the aliases that are names.
  std::vector<std::string> Names() const;
};

// What the APIs know of the model behind the engine: its names and its text. Filled by whoever
// loads it (cli/serve.cc); immutable while the server runs.
struct ServedModel {
  std::string id;                    // as clients name it
  std::vector<std::string> aliases;  // other names for it; in one, '*' stands for any text
  int64_t created = 0;               // seconds since 1970
  std::string family;
  std::string digest;  // of the cache's namespace
  uint64_t weight_bytes = 0;
  int64_t parameter_count = 0;
  std::string quantization;  // the type of most of its weights: "Q4_K"
  int64_t vocab_size = 0;
  int64_t dim = 0;  // of its vectors
  int32_t context_tokens = 0;
  size_t kv_block_bytes = 0;  // of 64 tokens; 0: the model keeps no K/V

  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;  // null: plain completion only
  const ChatEncoder* chat_encoder = nullptr;    // of that template
  std::string template_source;
  OutputFormat output;        // how it writes calls and reasoning
  CallShape call_shape;       // how its template is shown calls
  SystemShape system_shape;   // where its template takes system messages
  ThinkingSwitches thinking;  // how its template is told to think
  std::vector<std::pair<std::string, std::string>> special_tokens;  // for the template
  TextVectors vectors;  // whether and how texts become vectors
  // Makes tokens of a picture's file; null: the model reads text only. The template writes
  // `picture_token` where one stands.
  std::function<Result<std::shared_ptr<const SeenPicture>>(std::string_view, const PictureLimits&)>
      see;
  int32_t picture_token = -1;
  AdapterShelf* adapters = nullptr;  // null: there are none, and none can be loaded

  // Whether a request for `name` means this model, or an adapter of it. Without a name it does.
  bool Answers(std::string_view name) const;
  ModelBrief Brief() const;
  // What it can do, in Ollama's words: completion, tools, thinking, embedding.
  std::vector<std::string> Capabilities() const;
};

}  // namespace reprise::api
