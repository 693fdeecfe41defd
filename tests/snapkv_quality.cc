// SPDX-License-Identifier: Apache-2.0
// How well a model goes on when a part of the K/V of its prompt was left out (docs/snapkv.md).
//
//   snapkv_quality MODEL TEXTS COUNT WINDOW DEVICE BUDGET...
//
// TEXTS is a safetensors file with `tokens`, texts of `length` tokens each, of which the first
// `prompt` are the prompt. Of each of the first COUNT texts the prompt is run once; then the rest
// of the text, token by token as given, behind all of its K/V ("exact"), and for each budget behind
// what SnapKV keeps ("snapkv") and behind the first 4 tokens and the last ("window"), as many.
// Writes one JSON object: {"length", "prompt", "runs": [{"keeps", "budget", "logprob": [[...]],
// "first":
// [[...]]}]}, one row a text: the logarithm of each token's probability, and 1 where it is the most
// likely one. The first token follows all of the prompt, in every run: as it does in a server.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "device/scratch.h"
#include "kernels/make_backend.h"
#include "model/executor.h"
#include "model/live_state.h"
#include "model/load.h"
#include "model/snapkv/keep_list.h"
#include "weights/checkpoint.h"
#include "weights/format/safetensors.h"

namespace reprise {
namespace {

template <typename T>
T Must(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}

struct Texts {
  std::vector<TokenId> tokens;
  int32_t length = 0;
  int32_t prompt = 0;

  std::span<const TokenId> text(size_t i) const {
    return std::span(tokens).subspan(i * size_t(length), size_t(length));
  }
  size_t count() const { return tokens.size() / size_t(length); }
};

Texts ReadTexts(const char* path) {
  const MappedFile file = Must(MappedFile::Open(path));
  const SafetensorsFile tensors = Must(SafetensorsFile::Parse(file.bytes()));
  Texts texts{Must(tensors.ReadIds("tokens")), Must(tensors.ReadIds("length")).at(0),
              Must(tensors.ReadIds("prompt")).at(0)};
  CHECK(texts.prompt > 0 && texts.prompt < texts.length);
  return texts;
}

struct Scored {
  std::vector<double> logprob;
  std::vector<int> first;
};

struct Run {
  std::string_view keeps;
  int32_t budget = 0;
  std::vector<Scored> texts;
};

// One text at a time: sequence 0 has all of the prompt, sequence 1 what was kept of it.
class Reader {
 public:
  Reader(Executor& executor, const Texts& texts, int32_t window)
      : executor_(executor),
        prompt_(texts.prompt),
        window_(window),
        lists_(StateLayout(executor.card().state).list_count()),
        state_(Must(LiveState::Create(executor.card().state, 2, texts.length, executor.memory()))),
        weights_(Must(executor.memory().Allocate(lists_ * size_t(prompt_) * sizeof(float)))) {}

  void ReadPrompt(std::span<const TokenId> text) {
    text_ = text;
    state_.Clear(0);
    weights_ = Must(executor_.memory().Allocate(weights_.size()));  // zeros
    const auto rows = uint32_t(prompt_);
    const WatchedRows watched{0, rows - uint32_t(window_), uint32_t(window_),
                              weights_.data().As<float>(), prompt_};
    last_ = Forward(0, rows, rows - 1, std::span(&watched, 1));
    sums_.resize(lists_ * size_t(prompt_));
    executor_.memory().DownloadArray<float>(sums_, weights_.data().As<float>());
    recurrent_ = state_.SaveState(0);
  }

  // Behind all of the prompt: once, and last.
  Scored Exact() { return GoOn(0); }

  Scored Kept(const Run& run) {
    const int32_t kept = KeptTokens(executor_.card().state, {.budget = run.budget}, prompt_);
    CHECK(kept < prompt_);
    std::vector<int32_t> lists(lists_ * size_t(kept));
    for (size_t list = 0; list < lists_; ++list) {
      const auto rows = std::span(lists).subspan(list * size_t(kept), size_t(kept));
      if (run.keeps == "snapkv") {
        const auto sums = std::span(sums_).subspan(list * size_t(prompt_), size_t(prompt_));
        ChooseKept(sums, window_, rows);
      } else {
        std::iota(rows.begin(), rows.end(), prompt_ - kept);
        std::iota(rows.begin(), rows.begin() + kSinkTokens, 0);
      }
    }
    CHECK(
        executor_.Keep({state_.blocks(0), prompt_, state_.blocks(1), lists, kept}, state_.memory())
            .ok());
    state_.Clear(1);
    state_.Advance(1, prompt_);
    state_.Restore(1, prompt_, recurrent_);
    state_.Keep(1, kept);
    return GoOn(1);
  }

 private:
  // Logits of rows [from, rows).
  std::vector<float> Forward(int sequence, uint32_t rows, uint32_t from,
                             std::span<const WatchedRows> watched) {
    const auto vocab = size_t(executor_.card().vocab_size);
    const SequenceSlice slice = state_.Next(sequence, 0, rows);
    std::vector<uint32_t> wanted(rows - from);
    std::iota(wanted.begin(), wanted.end(), from);
    std::vector<float> logits(wanted.size() * vocab);
    uint8_t finite = 0;
    BatchView batch{text_.subspan(size_t(slice.past.logical), rows), std::span(&slice, 1), wanted,
                    std::span(&finite, 1)};
    batch.watched = watched;
    CHECK(executor_.Forward(batch, state_.memory(), logits.data()).ok() && finite == 1);
    state_.Advance(sequence, rows);
    return logits;
  }

  Scored GoOn(int sequence) {
    const auto vocab = size_t(executor_.card().vocab_size);
    const auto rest = text_.subspan(size_t(prompt_));
    std::vector<float> logits = last_;
    if (rest.size() > 1) {
      const auto more = Forward(sequence, uint32_t(rest.size() - 1), 0, {});
      logits.insert(logits.end(), more.begin(), more.end());
    }
    Scored scored;
    for (size_t i = 0; i < rest.size(); ++i) {
      const auto row = std::span(logits).subspan(i * vocab, vocab);
      const auto most = std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const float x : row) sum += std::exp(double(x) - double(*most));
      const auto token = size_t(rest[i]);
      scored.logprob.push_back(double(row[token]) - double(*most) - std::log(sum));
      scored.first.push_back(size_t(most - row.begin()) == token);
    }
    return scored;
  }

  Executor& executor_;
  const int32_t prompt_;
  const int32_t window_;
  const size_t lists_;
  LiveState state_;
  DeviceBuffer weights_;
  std::span<const TokenId> text_;
  std::vector<float> last_;  // logits behind the prompt
  std::vector<float> sums_;
  std::vector<std::byte> recurrent_;
};

void Write(const Texts& texts, const std::vector<Run>& runs) {
  std::string text;
  JsonWriter json(&text);
  json.BeginObject().Member("length", texts.length).Member("prompt", texts.prompt);
  json.Key("runs").BeginArray();
  for (const Run& run : runs) {
    json.BeginObject().Member("keeps", run.keeps).Member("budget", run.budget);
    json.Key("logprob").BeginArray();
    for (const Scored& one : run.texts) {
      json.BeginArray();
      for (const double x : one.logprob) json.Double(x);
      json.EndArray();
    }
    json.EndArray().Key("first").BeginArray();
    for (const Scored& one : run.texts) {
      json.BeginArray();
      for (const int x : one.first) json.Int(x);
      json.EndArray();
    }
    json.EndArray().EndObject();
  }
  json.EndArray().EndObject();
  std::puts(text.c_str());
}

void Measure(int argc, char** argv) {
  const Texts texts = ReadTexts(argv[2]);
  const size_t count = std::min(texts.count(), size_t(std::atoi(argv[3])));
  std::vector<Run> runs = {{"exact", texts.prompt, {}}};
  for (int i = 6; i < argc; ++i) {
    runs.push_back({"snapkv", std::atoi(argv[i]), {}});
    runs.push_back({"window", std::atoi(argv[i]), {}});
  }
  const std::unique_ptr<Backend> backend = Must(MakeBackend({.device = argv[5]}));
  ScratchArena scratch(backend->memory());
  const OpContext context{backend.get(), &scratch};
  const Checkpoint checkpoint = Must(OpenCheckpoint(argv[1]));
  const std::unique_ptr<Model> model = Must(LoadModel(checkpoint, context, {}));
  ModelExecutor executor(*model, context);
  CHECK(executor.keeps());
  Reader reader(executor, texts, std::atoi(argv[4]));
  for (size_t i = 0; i < count; ++i) {
    reader.ReadPrompt(texts.text(i));
    for (Run& run : std::span(runs).subspan(1)) run.texts.push_back(reader.Kept(run));
    runs[0].texts.push_back(reader.Exact());
  }
  Write(texts, runs);
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr, "snapkv_quality MODEL TEXTS COUNT WINDOW DEVICE BUDGET...\n");
    return 2;
  }
  reprise::Measure(argc, argv);
  return 0;
}
