// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/fleet/fleet.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/tenants.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "cli/bundled_model.h"
#include "cli/serve/serve_options.h"

namespace reprise::cli {
namespace {

constexpr char kPath[] = "/v1/completions";
// Weights of 18 MiB, 256 to compute in, and state: room for one model, not for two.
constexpr size_t kMemoryOfOne = size_t{400} << 20;
constexpr size_t kWorking = size_t{256} << 20;
// What has to come at all comes long before.
constexpr std::chrono::seconds kEver{60};

// A request as a server hands it to the fleet, without a connection: the test says when it is
// handled, when it ends, and whether its client is still there.
class Visit final : public http::Exchange, public std::enable_shared_from_this<Visit> {
 public:
  explicit Visit(const std::string& model) {
    request_.method = "POST";
    request_.path = kPath;
    request_.body = "{\"model\":\"" + model + "\"}";  // without a prompt: answered at once, by 400
  }

  const http::Request& request() const override { return request_; }
  bool abandoned() const override { return false; }
  const AccountPtr& account() const override { return account_; }
  void StartOver() override {}
  std::function<void()> Park() override {
    const std::lock_guard lock(mutex_);
    parked_ = true;
    return [self = shared_from_this()] {
      const std::lock_guard called(self->mutex_);
      self->parked_ = false;
      ++self->calls_;
      self->changed_.notify_all();
    };
  }
  void Keep(std::shared_ptr<void> token) override { kept_.push_back(std::move(token)); }
  void Respond(http::Response response) override {
    const std::lock_guard lock(mutex_);
    status_ = response.status;
  }
  void StartStream(http::Headers) override {}
  void Send(std::string) override {}
  void End() override {}
  size_t pending_bytes() const override { return 0; }
  void OnClose(std::function<void()>) override {}
  void OnDrained(std::function<void()>) override {}
  void Post(std::function<void()> task) override { task(); }
  void After(std::chrono::milliseconds, std::function<void()>) override {}

  bool parked() const {
    const std::lock_guard lock(mutex_);
    return parked_;
  }
  int status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  // Until what it waits for has happened, `calls` times so far.
  bool AwaitCall(int calls = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kEver, [&] { return calls_ >= calls; });
  }
  int calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  http::Request request_;
  const AccountPtr account_ = std::make_shared<Account>();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool parked_ = false;
  int calls_ = 0;
  int status_ = 0;
  std::vector<std::shared_ptr<void>> kept_;
};

class FleetTest : public testing::Test {
 protected:
  ~FleetTest() override { SetLogLevel(LogLevel::kInfo); }  // as other tests expect it
  static ServeOptions ModelNamed(const std::string& name) {
    ServeOptions one;
    auto path = FindBundledModel();
    EXPECT_TRUE(path.ok());
    if (path.ok()) one.model.path = *path;
    one.model.device = "cpu";
    one.model.threads = 1;
    one.aliases = {name};
    one.context_tokens = 256;
    one.parallel = 2;
    one.idle_work = false;
    return one;
  }
  void Open(const std::vector<std::string>& names) {
    std::vector<ServeOptions> models;
    for (const std::string& name : names) models.push_back(ModelNamed(name));
    Open(std::move(models), {{"cpu", {kMemoryOfOne, kWorking}}});
  }
  void Open(std::vector<ServeOptions> models, DeviceBudgets::Map budgets) {
    SetLogLevel(LogLevel::kError);
    ModelStack::Shared shared;
    shared.clock = &clock_;
    shared.budgets = DeviceBudgets(std::move(budgets));
    auto fleet = Fleet::Open(std::move(models), std::move(shared));
    ASSERT_TRUE(fleet.ok()) << fleet.status().message();
    fleet_ = std::move(*fleet);
    const auto& routes = fleet_->front().router().routes();
    while (routes[route_].path != kPath || routes[route_].method != "POST") ++route_;
  }

  std::shared_ptr<Visit> Come(const std::string& model) {
    auto visit = std::make_shared<Visit>(model);
    Handle(visit);
    return visit;
  }
  void Handle(const std::shared_ptr<Visit>& visit) { fleet_->Handle(route_, visit); }

  std::string StateOf(const std::string& name) const {
    for (const api::ModelBrief& brief : fleet_->List()) {
      if (brief.id == name) return brief.status;
    }
    return "";
  }
  // The model answers what it has; returns a request that has come since, and waits.
  std::shared_ptr<Visit> AwaitLeaving(const std::string& name) {
    const auto end = std::chrono::steady_clock::now() + kEver;
    for (;;) {
      auto visit = Come(name);
      if (visit->parked() || std::chrono::steady_clock::now() > end) return visit;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  SteadyClock clock_;
  std::unique_ptr<Fleet> fleet_;
  size_t route_ = 0;
};

// 512 clients at the same moment were refused by a server that runs 256.
TEST(Queue, HoldsABurstOfSeveralTimesWhatRuns) {
  EXPECT_EQ(WaitingMax(0, 4), 256);
  EXPECT_EQ(WaitingMax(0, 256), 1024);
  EXPECT_EQ(WaitingMax(7, 256), 7);
}

TEST_F(FleetTest, AModelComesWhenItIsWanted) {
  Open({"a", "b"});
  EXPECT_EQ(Come("a")->status(), 400) << "it is there: the handler has answered";
  const auto visit = Come("b");
  EXPECT_TRUE(visit->parked());
  ASSERT_TRUE(visit->AwaitCall());
  EXPECT_EQ(StateOf("b"), "loaded");
  EXPECT_EQ(StateOf("a"), "sleeping");
  Handle(visit);
  EXPECT_EQ(visit->status(), 400);
}

// One that waited and is gone when its model is there holds nobody up: the model may leave at once,
// with nothing else happening.
TEST_F(FleetTest, WhoWaitedAndLeftKeepsNobodyWaiting) {
  Open({"a", "b"});
  auto gone = Come("b");
  ASSERT_TRUE(gone->AwaitCall());
  const auto next = Come("a");
  gone.reset();
  ASSERT_TRUE(next->AwaitCall()) << "it waits for a request that does not come back";
}

// The model is to leave and has a request that begins once more (as a heavy one): it is served, not
// made to wait for the model to come back, which would wait for it.
TEST_F(FleetTest, WhoWasLetInDoesNotWaitForItself) {
  Open({"a", "b"});
  auto visit = Come("a");
  auto other = Come("b");
  const auto later = AwaitLeaving("a");
  ASSERT_TRUE(later->parked());
  Handle(visit);
  EXPECT_FALSE(visit->parked());
  visit.reset();
  ASSERT_TRUE(other->AwaitCall());
  other.reset();
  ASSERT_TRUE(later->AwaitCall());
}

// The same for those that have waited: from the moment that their model is there.
TEST_F(FleetTest, WhoHasWaitedIsServedBeforeItsModelLeaves) {
  Open({"a", "b"});
  auto visit = Come("b");
  ASSERT_TRUE(visit->AwaitCall());
  const auto other = Come("a");
  const auto later = AwaitLeaving("b");
  ASSERT_TRUE(later->parked());
  EXPECT_EQ(other->calls(), 0);
  Handle(visit);
  EXPECT_FALSE(visit->parked());
  EXPECT_EQ(visit->status(), 400);
  visit.reset();
  ASSERT_TRUE(other->AwaitCall());
}

// A model that has no room however many others go is refused, and they stay.
TEST_F(FleetTest, NobodyGoesForAModelThatIsTooLarge) {
  std::vector<ServeOptions> models = {ModelNamed("a"), ModelNamed("large")};
  models[1].context_tokens = 4096;
  const auto small = ModelStack::Foresee(models[0]), large = ModelStack::Foresee(models[1]);
  ASSERT_TRUE(small.ok() && large.ok());
  ASSERT_LT(2 * small->state_bytes, large->state_bytes);
  const size_t memory = kWorking + small->weight_bytes + large->state_bytes;
  Open(std::move(models), {{"cpu", {memory - (1 << 20), kWorking}}});
  const auto visit = Come("large");
  ASSERT_TRUE(visit->AwaitCall());
  Handle(visit);
  EXPECT_EQ(visit->status(), 503);
  EXPECT_EQ(StateOf("large"), "failed");
  EXPECT_EQ(StateOf("a"), "loaded");
}

// Each device has its budget: who wants room on one makes nobody go on another.
TEST_F(FleetTest, ModelsOfAnotherDeviceStay) {
  std::vector<ServeOptions> models = {ModelNamed("a"), ModelNamed("elsewhere"), ModelNamed("b")};
  models[1].model.device = "cuda:1000";  // nobody has so many
  Open(std::move(models),
       {{"cpu", {kMemoryOfOne, kWorking}}, {"cuda:1000", {kMemoryOfOne, kWorking}}});
  const auto visit = Come("elsewhere");
  ASSERT_TRUE(visit->AwaitCall());
  Handle(visit);
  EXPECT_EQ(visit->status(), 503);
  EXPECT_EQ(StateOf("a"), "loaded");
  ASSERT_TRUE(Come("b")->AwaitCall());
  EXPECT_EQ(StateOf("a"), "sleeping");
}

// Two that are always wanted do not keep a third one away, wherever it stands in the list.
TEST_F(FleetTest, ModelsComeInTheOrderInWhichTheyAreWanted) {
  Open({"a", "b", "c"});
  auto a = Come("a");
  auto b = Come("b");
  const auto c = Come("c");
  a.reset();
  ASSERT_TRUE(b->AwaitCall());
  const auto again = Come("a");
  b.reset();
  ASSERT_TRUE(c->AwaitCall()) << "a came first again";
  EXPECT_EQ(again->calls(), 0);
}

// Many at once, for more models than there is memory for, with clients that leave and requests that
// begin again: all of them get their turn, and all that stay are answered.
TEST_F(FleetTest, EverybodyGetsATurn) {
  const std::vector<std::string> names = {"a", "b", "c"};
  Open(names);
  constexpr int kUsers = 8, kVisits = 12;
  std::vector<std::thread> users;
  std::atomic<int> answered{0}, left{0};
  for (int user = 0; user < kUsers; ++user) {
    users.emplace_back([&, user] {
      Rng rng(static_cast<uint64_t>(user) + 1);
      for (int i = 0; i < kVisits; ++i) {
        const auto visit = Come(names[rng.Below(names.size())]);
        bool leaves = false;
        for (int waits = 1; visit->status() == 0 && !leaves; ++waits) {
          ASSERT_TRUE(visit->AwaitCall(waits)) << "user " << user << ", visit " << i;
          leaves = rng.Below(8) == 0;
          if (!leaves) Handle(visit);
        }
        if (rng.Below(4) == 0) Handle(visit);
        EXPECT_FALSE(visit->parked());
        leaves ? ++left : ++answered;
        if (rng.Below(2) == 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(rng.Below(20)));
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(answered + left, kUsers * kVisits);
  EXPECT_GT(answered, 0);
}

}  // namespace
}  // namespace reprise::cli
