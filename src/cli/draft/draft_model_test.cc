// SPDX-License-Identifier: Apache-2.0
#include "cli/draft/draft_model.h"

#include <gtest/gtest.h>

namespace reprise::cli {
namespace {

using Mtp = ModelOptions::Mtp;

// A GPU has drafts where a drafter is named, and reads no block that nobody asks.
TEST(SpeculateOptions, AutoHasNoDraftsOnAGpu) {
  const SpeculateOptions by_default;
  EXPECT_EQ(ModeOn(by_default, false), Speculate::kAuto);
  EXPECT_EQ(ModeOn(by_default, true), Speculate::kOff);
  EXPECT_EQ(WantsMtp(by_default), Mtp::kByDefault);
  EXPECT_EQ(ModeOn({"auto", "small.gguf"}, true), Speculate::kAuto);
  EXPECT_EQ(ModeOn({"ngram", ""}, true), Speculate::kNgram);
  EXPECT_EQ(WantsMtp({"ngram", ""}), Mtp::kNever);
  EXPECT_EQ(ModeOn({"mtp", ""}, true), Speculate::kMtp);
  EXPECT_EQ(WantsMtp({"mtp", ""}), Mtp::kAlways);
  EXPECT_EQ(ModeOn({"off", ""}, false), Speculate::kOff);
  EXPECT_EQ(WantsMtp({"off", ""}), Mtp::kNever);
}

}  // namespace
}  // namespace reprise::cli
