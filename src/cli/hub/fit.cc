// SPDX-License-Identifier: Apache-2.0
#include "cli/hub/fit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"
#include "cli/bench/machine_peak.h"
#include "cli/model_outline.h"
#include "device/scratch.h"
#include "hub/hub.h"
#include "kernels/make_backend.h"
#include "weights/checkpoint.h"
#include "weights/format/gguf.h"

namespace reprise::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHeadFirst = 1 << 20;
constexpr uint64_t kHeadMax = 64 << 20;      // vocabularies of 250,000 tokens take some 12 MiB
constexpr uint64_t kTensorEntryBytes = 256;  // rank, extents, type and offset behind a name
constexpr uint64_t kConfigMax = 16 << 20;
constexpr uint64_t kReserve = 256 << 20;  // activations, tokenizer, the program
constexpr int64_t kContextMin = 2048;     // less is no conversation
constexpr int64_t kContextGood = 8192;
constexpr uint64_t kMeasuredMax = 256 << 20;  // more than caches hold

// A folder for what the families read: gone with this.
class Workspace {
 public:
  Workspace() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "reprise-fit-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~Workspace() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  Status status() const {
    return path_.empty() ? Internal("there is no folder for temporary files") : OkStatus();
  }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A file as long as the model's that holds only its head: the rest is a hole.
class HeadFile {
 public:
  explicit HeadFile(std::string path) : path_(std::move(path)) {}
  ~HeadFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  HeadFile(const HeadFile&) = delete;
  HeadFile& operator=(const HeadFile&) = delete;

  Status Open(uint64_t bytes) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
      return Internal("cannot write " + path_);
    }
    return OkStatus();
  }
  Status Append(std::string_view bytes) {
    if (::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(filled_)) !=
        static_cast<ssize_t>(bytes.size())) {
      return Internal("cannot write " + path_);
    }
    filled_ += bytes.size();
    return OkStatus();
  }
  uint64_t filled() const { return filled_; }

  // Whether all that a parser sees lies in what was fetched.
  Result<bool> IsWhole() const {
    REPRISE_ASSIGN(const MappedFile file, MappedFile::Open(path_));
    const Result<GgufFile> gguf = GgufFile::Parse(file.bytes());
    if (!gguf.ok()) return false;
    const auto* begin = reinterpret_cast<const char*>(file.bytes().data());
    uint64_t end = 0;
    for (const GgufFile::Entry& entry : gguf->entries()) {
      const std::span<const std::byte> bytes = entry.value.bytes();
      end =
          std::max(end, static_cast<uint64_t>(reinterpret_cast<const char*>(bytes.data()) - begin) +
                            bytes.size());
    }
    for (const StoredTensor& tensor : gguf->tensors()) {
      end = std::max(end, static_cast<uint64_t>(tensor.name.data() + tensor.name.size() - begin) +
                              kTensorEntryBytes);
    }
    return std::min<uint64_t>(end, file.bytes().size()) <= filled_;
  }

 private:
  const std::string path_;
  int fd_ = -1;
  uint64_t filled_ = 0;
};

Status FetchHead(const hub::Hub& hub, const hub::PullPlan& plan, const hub::HubFile& file,
                 const std::string& path) {
  HeadFile head(path);
  REPRISE_TRY(head.Open(file.bytes));
  for (uint64_t want = kHeadFirst; head.filled() < std::min(file.bytes, kHeadMax); want *= 4) {
    const uint64_t end = std::min({want, file.bytes, kHeadMax});
    REPRISE_ASSIGN(const std::string bytes,
                   hub.ReadPart(plan.name, plan.listing.commit, file, head.filled(), end));
    if (bytes.size() != end - head.filled()) return DataLoss("the hub sent too little");
    REPRISE_TRY(head.Append(bytes));
    REPRISE_ASSIGN(const bool whole, head.IsWhole());
    if (whole) return OkStatus();
  }
  return OkStatus();  // the parser says what is wrong
}

// An empty safetensors file: config.json alone is to be read.
constexpr std::string_view kNoTensors{"\x02\0\0\0\0\0\0\0{}", 10};

Result<std::string> FetchHeads(const hub::Hub& hub, const hub::PullPlan& plan,
                               const hub::ModelFiles& files, const Workspace& work) {
  REPRISE_TRY(work.status());
  if (!files.label.empty()) {
    for (const hub::HubFile& file : files.files) {
      const std::string name = fs::path(file.path).filename().string();
      REPRISE_TRY(FetchHead(hub, plan, file, work.File(name)));
    }
    return work.File(fs::path(files.entry).filename().string());
  }
  const hub::HubFile* config = plan.listing.Find("config.json");
  if (config == nullptr || config->bytes > kConfigMax) return NotFound("there is no config.json");
  REPRISE_ASSIGN(const std::string text,
                 hub.ReadPart(plan.name, plan.listing.commit, *config, 0, config->bytes));
  const auto bytes = [](std::string_view data) {
    return std::as_bytes(std::span(data.data(), data.size()));
  };
  REPRISE_TRY(WriteFileAtomically(work.File("config.json"), bytes(text)));
  REPRISE_TRY(WriteFileAtomically(work.File("model.safetensors"), bytes(kNoTensors)));
  return work.path();
}

std::string Tokens(int64_t count) { return std::to_string(count) + " tokens"; }

}  // namespace

Result<StateCard> ReadStateCard(const hub::Settings& settings, const hub::PullPlan& plan,
                                const hub::ModelFiles& files, DType kv) {
  const Workspace work;
  const hub::Hub hub(settings, nullptr);
  REPRISE_ASSIGN(const std::string path, FetchHeads(hub, plan, files, work));
  Result<Checkpoint> opened = OpenCheckpoint(path);
  if (!opened.ok()) {
    // Without the folder's name, which is nobody's concern.
    std::string text = opened.status().message();
    if (const size_t at = text.find(work.path()); at != std::string::npos) {
      text.erase(at, std::min(work.path().size() + 1, text.size() - at));
    }
    return Status(opened.status().code(), text);
  }
  REPRISE_ASSIGN(const ModelOutline outline, ReadModelOutline(*opened, kv, 0));
  const ModelCard& made = outline.card;
  StateCard card;
  card.step_share = outline.step_share;
  card.context_tokens = made.context_length;
  card.token_bytes = made.state.bytes_per_token(StateKind::kFullKv);
  card.sequence_bytes = made.state.state_bytes();
  int window = 0;
  for (const LayerState& layer : made.state.layers) window = std::max(window, layer.window);
  card.sequence_bytes += made.state.bytes_per_token(StateKind::kWindowKv) *
                         static_cast<uint64_t>(std::min<int64_t>(window, made.context_length));
  return card;
}

FitVerdict JudgeFit(uint64_t file_bytes, const StateCard& card, const AvailableMemory& memory) {
  FitVerdict fit;
  fit.weight_bytes = file_bytes;
  fit.step_bytes = static_cast<uint64_t>(double(file_bytes) * card.step_share);
  const uint64_t fixed = file_bytes + kReserve + card.sequence_bytes;
  const uint64_t least =
      std::min<int64_t>(kContextMin, card.context_tokens) > 0
          ? uint64_t(std::min<int64_t>(kContextMin, card.context_tokens)) * card.token_bytes
          : 0;
  if (memory.bytes == UINT64_MAX) {
    fit.fits = true;
    fit.context_tokens = card.context_tokens;
    fit.why = "nothing is known about the memory of this machine";
    return fit;
  }
  const std::string free =
      FormatBytes(memory.bytes) + " that " + std::string(memory.limited_by) + " has left";
  if (memory.bytes < fixed + least) {
    fit.why = "weights of " + FormatBytes(file_bytes) + " and state of " +
              FormatBytes(fixed + least - file_bytes) + " at least, for " + free;
    return fit;
  }
  fit.fits = true;
  const uint64_t left = memory.bytes - fixed;
  const uint64_t tokens = card.token_bytes == 0 ? UINT64_MAX : left / card.token_bytes;
  fit.context_tokens = static_cast<int64_t>(
      std::min<uint64_t>(tokens, static_cast<uint64_t>(std::max<int64_t>(card.context_tokens, 0))));
  fit.why = "weights of " + FormatBytes(file_bytes) + " and " +
            (card.token_bytes == 0 ? "no state per token"
                                   : FormatBytes(card.token_bytes) + " per token") +
            ", of " + free;
  return fit;
}

double MeasureBandwidth(uint64_t step_bytes, const AvailableMemory& memory) {
  auto backend = MakeBackend({"cpu", 0, 0});
  if (!backend.ok()) return 0;
  ScratchArena scratch((*backend)->memory());
  const uint64_t most = std::clamp<uint64_t>(memory.bytes / 8, 1, kMeasuredMax);
  return ReadPeak({backend->get(), &scratch}, std::clamp<uint64_t>(step_bytes, 1, most)).giga * 1e9;
}

double MostTokensPerSecond(const FitVerdict& fit, double bytes_per_second) {
  return fit.step_bytes == 0 ? 0 : bytes_per_second / double(fit.step_bytes);
}

std::string FitTable(const hub::PullPlan& plan, const StateCard* card,
                     const AvailableMemory& memory, double bytes_per_second) {
  std::string text;
  const hub::ModelFiles* best = nullptr;
  char line[256];
  for (const hub::ModelFiles& model : plan.offer.models) {
    if (!model.complete || model.label.empty()) continue;
    std::string verdict = "unknown";
    if (card != nullptr) {
      const FitVerdict fit = JudgeFit(model.bytes(), *card, memory);
      verdict = fit.fits ? "fits, context of " + Tokens(fit.context_tokens) : "does not fit";
      const double speed = fit.fits ? MostTokensPerSecond(fit, bytes_per_second) : 0;
      if (speed > 0) verdict += fmt::format(", at most {:.3g} tokens/s", speed);
      if (fit.fits && fit.context_tokens >= std::min(kContextGood, card->context_tokens)) {
        best = &model;
      }
    }
    std::snprintf(line, sizeof line, "  %-20s %10s  %s\n", model.label.substr(0, 100).c_str(),
                  FormatBytes(model.bytes()).c_str(), verdict.c_str());
    text += line;
  }
  if (card != nullptr && memory.bytes != UINT64_MAX) {
    text +=
        "  (" + std::string(memory.limited_by) + " has " + FormatBytes(memory.bytes) + " left)\n";
  }
  if (best != nullptr) {
    text += "The largest that fits here: " + plan.name.repo + ":" + best->label + "\n";
  }
  return text;
}

}  // namespace reprise::cli
