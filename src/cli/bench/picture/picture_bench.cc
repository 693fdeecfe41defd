// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/picture/picture_bench.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mapped_file.h"
#include "base/rng.h"
#include "cli/bench/op_profile.h"
#include "cli/bench/report.h"
#include "cli/commands.h"
#include "cli/loaded_model.h"
#include "model/vision/seen_picture.h"
#include "model/vision/tower.h"

namespace reprise::cli {
namespace {

struct Options {
  ModelOptions model;
  std::string image;
  int32_t width = 1920;
  int32_t height = 1080;
  int32_t repeat = 5;
  bool profile = false;
};

Pixels Noise(const PictureSize& size) {
  Pixels pixels{size.width, size.height, {}};
  pixels.rgb.resize(size_t(size.width) * size_t(size.height) * 3);
  Rng rng(1);
  for (uint8_t& value : pixels.rgb) value = static_cast<uint8_t>(rng.Below(256));
  return pixels;
}

// What the tower looks at: a file, read `repeat` times, or noise.
Result<Pixels> PixelsOf(const Options& options, const TowerCard& card) {
  if (options.image.empty()) {
    REPRISE_ASSIGN(const PictureSize size,
                   PatchedSize({options.width, options.height}, card.rules));
    return Noise(size);
  }
  REPRISE_ASSIGN(const MappedFile file, MappedFile::Open(options.image));
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()),
                               file.bytes().size());
  const SteadyClock clock;
  std::vector<double> times;
  Pixels pixels;
  for (int i = 0; i < options.repeat; ++i) {
    const int64_t begin = clock.NowNs();
    REPRISE_ASSIGN(const auto seen, SeePicture(card, bytes));
    times.push_back(double(clock.NowNs() - begin) * 1e-6);
    pixels = seen->pixels;
  }
  std::printf("decoded, resized and named in %.1f ms (median of %d)\n", Median(times),
              options.repeat);
  return pixels;
}

Status LookAt(const VisionTower& tower, const OpContext& context, const Pixels& pixels) {
  REPRISE_ASSIGN(const auto look, tower.Begin(context, pixels));
  for (bool done = false; !done;) {
    REPRISE_ASSIGN(done, look->Advance(context));
  }
  return OkStatus();
}

Status Run(Options options) {
  options.model.tower = true;
  REPRISE_ASSIGN(const std::unique_ptr<LoadedModel> loaded, LoadedModel::Load(options.model));
  const VisionTower* tower = loaded->model().tower();
  if (tower == nullptr) return InvalidArgument("this model sees no pictures");
  const TowerCard& card = tower->card();
  REPRISE_ASSIGN(const Pixels pixels, PixelsOf(options, card));
  const SteadyClock clock;
  std::vector<double> times;
  for (int i = 0; i <= options.repeat; ++i) {  // the first for nothing
    const int64_t begin = clock.NowNs();
    REPRISE_TRY(LookAt(*tower, loaded->context(), pixels));
    if (i > 0) times.push_back(double(clock.NowNs() - begin) * 1e-6);
  }
  const int patches = pixels.width / card.rules.patch * (pixels.height / card.rules.patch);
  const int tokens = patches / (card.rules.merge * card.rules.merge);
  std::printf("%d x %d pixels, %d patches, %d tokens: %.1f ms (median of %d, least %.1f)\n",
              pixels.width, pixels.height, patches, tokens, Median(times), options.repeat,
              Percentile(times, 0));
  if (!options.profile) return OkStatus();
  OpProfile profile(loaded->backend());
  OpContext watched = loaded->context();
  watched.observer = &profile;
  const int64_t begin = clock.NowNs();
  profile.BeginStep();
  REPRISE_TRY(LookAt(*tower, watched, pixels));
  profile.EndStep();
  profile.Print(double(clock.NowNs() - begin) * 1e-9, tokens);
  return OkStatus();
}

}  // namespace

void DefinePictureBench(Flags* flags) {
  auto options = std::make_shared<Options>();
  AddModelOptions(flags, &options->model);
  flags->Add("--image", &options->image, "a file; otherwise noise of the size below");
  flags->Add("--width", &options->width, "of the noise", {.min = 1, .max = 16384});
  flags->Add("--height", &options->height, "of the noise", {.min = 1, .max = 16384});
  flags->Add("--repeat", &options->repeat, "repetitions", {.min = 1, .max = 1000});
  flags->Add("--profile", &options->profile, "also the time of every op");
  flags->SetAction([options] { return Run(*options); });
}

}  // namespace reprise::cli
