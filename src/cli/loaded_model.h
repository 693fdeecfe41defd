// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/flags.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "kernels/devices/devices.h"
#include "model/config/generation_defaults.h"
#include "model/model.h"
#include "sample/sampler.h"
#include "state/ids.h"
#include "tensor/dtype.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace reprise::cli {

inline constexpr char kModelHeading[] = "Model and device";

// The options of every command that runs a model.
struct ModelOptions {
  std::string path;
  std::string kv = "f16";
  std::string weights;  // empty: as stored
  int threads = 0;      // 0: one per core
  std::string device = "auto";
  std::string devices;         // several, by name; empty: `device`
  bool tensor_parallel = false;  // they divide what is in each layer, not the layers
  std::vector<size_t> layers;  // on each of them; empty: as memory allows
  std::optional<int32_t> gpu_layers;
  std::string cpu_experts;          // "auto", "all" or a number of layers; empty: none
  std::optional<int32_t> vram_mib;  // none: what is free
  int context_tokens = 0;           // of the longest sequence; 0: as the model says
  bool tower = false;               // what looks at pictures as well
  std::string mmproj;               // the tower's GGUF file; empty: what lies beside a GGUF model
  // Its block that predicts further tokens, for drafts: where its device has drafts by default, or
  // on any.
  enum class Mtp : uint8_t { kNever, kByDefault, kAlways };
  Mtp mtp = Mtp::kNever;
  // Called while weights are read, with bytes.
  std::function<void(uint64_t done, uint64_t total)> progress;
};
// The model is named by position or by --model; without one, commands use the bundled model. Where
// `paths` is given, several may be named, and all of them go there.
void AddModelOptions(Flags* flags, ModelOptions* options,
                     std::vector<std::string>* paths = nullptr);

// The value of --kv.
DType KvType(std::string_view name);

// Minimum tokens between snapshots of one prompt, where nothing else is asked for. Snapshots of
// small states may stand closer together: conversations with small models are short.
int32_t DefaultSnapshotGap(const StateSpec& state);

// A model with the device, or the devices, that run it. Its weights may go while nobody needs them:
// what the model says about itself, and its device, stay.
class LoadedModel {
 public:
  // Shows progress on stderr. Without a path: the bundled model.
  static Result<std::unique_ptr<LoadedModel>> Load(const ModelOptions& options);

  const Checkpoint& checkpoint() const { return *checkpoint_; }
  // REQUIRES: awake.
  const Model& model() const { return *model_; }

  bool awake() const { return model_ != nullptr; }
  // Gives the weights' memory back. REQUIRES: nothing runs, and nobody holds model().
  void Sleep();
  // Reads the weights again, from the file that was opened first. Fails with kFailedPrecondition
  // if it holds another model by now.
  Status Wake();

  const std::string& path() const { return path_; }
  const ModelCard& card() const { return card_; }
  // What adapters need to know of it.
  const std::shared_ptr<const AdaptableModel>& adaptable() const { return adaptable_; }
  // The token that stands for a picture in prompts; -1: the model sees none. Fails if the
  // vocabulary has no such token. REQUIRES: awake.
  Result<TokenId> FindPictureToken(const Tokenizer& tokenizer) const;
  // Sequences at the same time: `wanted`, or, if it is 0, as many as suit its device.
  int Parallel(int wanted) const;
  Backend& backend() { return *context_.backend; }  // of the first device
  Devices* devices() { return devices_.get(); }     // null: there is one
  // Where the state of sequences lies.
  DeviceMemory& memory() { return devices_ != nullptr ? devices_->memory() : backend_->memory(); }
  // How steps are planned on its device: rows of a step, and the promised gap between two tokens of
  // a stream. `parallel`: sequences at the same time. `gap_ms`: 0: the device's default.
  SchedulerOptions Steps(int parallel, int gap_ms);
  OpContext context() { return context_; }

 private:
  explicit LoadedModel(const ModelOptions& options) : options_(options) {}
  Status OpenDevices();
  Status OpenMmproj();
  Status OpenMtp();
  Status Read();
  bool takes_mtp() const;

  const ModelOptions options_;
  std::string path_;  // of the file
  std::optional<Checkpoint> checkpoint_;
  std::optional<Checkpoint> mmproj_;  // of a GGUF model with a tower
  std::optional<Checkpoint> mtp_;     // a file beside it that holds its block for further tokens
  std::unique_ptr<Devices> devices_;  // several, or null: then there is one
  std::unique_ptr<Backend> backend_;
  ScratchArena scratch_;
  OpContext context_;
  std::unique_ptr<Model> model_;
  ModelCard card_;
  std::shared_ptr<const AdaptableModel> adaptable_;
};

// How tokens are chosen where neither the model's files nor the request says: alike in the server
// and in the terminal. Below the plain distribution, whose rare tokens derail small models.
SamplingParams DefaultSampling();

// What `defaults` says; the rest stays.
void Apply(const GenerationDefaults& defaults, SamplingParams* params);

}  // namespace reprise::cli
