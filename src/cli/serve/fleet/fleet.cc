// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/fleet/fleet.h"

#include <algorithm>
#include <charconv>
#include <future>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "api/body.h"
#include "api/errors.h"
#include "api/model_name.h"
#include "api/ops/cache_feed.h"
#include "api/ops/exposition.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "cli/bundled_model.h"
#include "cli/serve/fleet/state_shares.h"
#include "weights/memory.h"

namespace reprise::cli {
namespace {

using Time = std::chrono::steady_clock;

constexpr auto kTick = std::chrono::milliseconds(250);  // how often states are shared out anew
constexpr auto kRetryAfter = std::chrono::seconds(10);  // a model that could not be loaded
constexpr size_t kWaitingMax = 1024;                    // requests for one model that is not there
constexpr size_t kWatchersMax = 64;

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Time::now().time_since_epoch())
      .count();
}

// Requests of these paths are answered by the text of a model alone.
bool IsTextOnly(std::string_view path) {
  for (const std::string_view end :
       {"/tokenize", "/detokenize", "/apply-template", "/count_tokens", "/input_tokens",
        "/responses/*", "/api/show", "/pins", "/reset"}) {
    if (path.ends_with(end)) return true;
  }
  return path == "/reset_prefix_cache";
}

// What a request to Ollama's endpoints says of how long the model stays behind it: a number of
// seconds or a duration; less than 0: as long as there is room. Nothing: it does not say, or not in
// a way that is known, or its tenant may not.
std::optional<int64_t> KeepAliveOf(const api::Service& service, const http::Request& request) {
  if (!request.path.starts_with("/api/")) return std::nullopt;
  const std::string text = api::FindKeepAlive(request.body);
  const api::Tenant* tenant = service.FindTenant(request);
  if (text.empty() || tenant == nullptr || !tenant->admin) return std::nullopt;
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number > 1e9) return std::nullopt;
  if (number < 0) return 0;
  const std::string_view rest(unit, static_cast<size_t>(end - unit));
  const double ms = rest.empty() || rest == "s" ? 1000
                    : rest == "ms"              ? 1
                    : rest == "m"               ? 60e3
                    : rest == "h"               ? 3600e3
                                                : 0;
  if (ms == 0) return std::nullopt;
  return std::max<int64_t>(1, static_cast<int64_t>(number * ms));  // 0: at once
}

const char* NameOf(bool awake, bool loading, bool built, bool failed) {
  if (loading) return "loading";
  if (awake) return "loaded";
  if (failed) return "failed";
  return built ? "sleeping" : "unloaded";
}

}  // namespace

Result<std::unique_ptr<Fleet>> Fleet::Open(std::vector<ServeOptions> models,
                                           ModelStack::Shared shared) {
  shared.model_count = std::max(static_cast<int>(models.size()), shared.grows ? 2 : 1);
  std::unique_ptr<Fleet> fleet(new Fleet(std::move(shared)));
  for (ServeOptions& options : models) {
    REPRISE_ASSIGN(options.model.path, FindModel(options.model.path));
    const std::lock_guard lock(fleet->mutex_);
    REPRISE_TRY(fleet->AddLocked(std::move(options)));
  }
  for (Member& member : fleet->members_) {
    if (&member != &fleet->members_.front() && !member.options.preload) continue;
    REPRISE_TRY(
        fleet->Bring(&member).Annotate(fleet->several() ? "model '" + member.brief.id + "'" : ""));
  }
  for (const http::Router::Route& route : fleet->front().router().routes()) {
    fleet->needs_weights_.push_back(route.method == "POST" && !IsTextOnly(route.path));
  }
  fleet->thread_ = std::thread([raw = fleet.get()] { raw->Run(); });
  return fleet;
}

Status Fleet::AddLocked(ServeOptions options) {
  Member member;
  member.options = std::move(options);
  if (shared_.budgets.shared()) {
    REPRISE_ASSIGN(member.device, shared_.budgets.DeviceOf(member.options.model));
    if (!member.device.starts_with("cuda")) member.options.model.vram_mib.reset();
  }
  member.keep_alive_ms = int64_t{member.options.keep_alive_s} * 1000;
  member.brief = NameModel(member.options, member.options.model.path);
  for (const Member& other : members_) {
    if (other.removed || other.brief.id != member.brief.id) continue;
    return InvalidArgument("two models are named '" + member.brief.id + "' (" +
                           other.options.model.path + " and " + member.options.model.path +
                           "); give one of them another name with an alias");
  }
  Member& added = members_.emplace_back(std::move(member));
  added.options.model.progress = [this, &added](uint64_t done, uint64_t total) {
    ShowProgress(&added, total > 0 ? static_cast<int>(100 * done / total) : 0);
  };
  return OkStatus();
}

Status Fleet::Add(ServeOptions options) {
  CHECK(grows());
  {
    const std::lock_guard lock(mutex_);
    // Its part would be that of others.
    options.disk.clear();
    options.host_mib = 0;
    REPRISE_TRY(AddLocked(std::move(options)));
  }
  TellWatchers();
  return OkStatus();
}

Status Fleet::Remove(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    Member* const member = name.empty() ? nullptr : FindLocked(name);
    if (member == nullptr) return NotFound("there is no model '" + name + "' here");
    if (member == &members_.front()) {
      return FailedPrecondition("'" + name +
                                "' answers requests that name no model; it can be removed when "
                                "the server has ended");
    }
    member->removed = true;
    if (member->stack) member->stack->service().feed().Close();
    member->unwanted = member->place == Place::kAwake;
  }
  changed_.notify_all();
  TellWatchers();
  return OkStatus();
}

Fleet::~Fleet() { Stop(); }

void Fleet::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (Member& member : members_) {
    std::vector<Waiting> waiting;  // dropped without the lock
    {
      const std::lock_guard lock(mutex_);
      waiting.swap(member.waiting);
    }
    if (member.stack) member.stack->Stop();
  }
}

std::vector<std::pair<std::string, api::Service*>> Fleet::Services() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, api::Service*>> services;
  for (const Member& member : members_) {
    if (member.stack && !member.removed)
      services.emplace_back(member.brief.id, &member.stack->service());
  }
  return services;
}

Fleet::Member* Fleet::Find(const http::Request& request, std::string* name) {
  *name = request.QueryValue("model");
  if (name->empty() && !request.body.empty()) *name = api::FindModelName(request.body);
  const std::lock_guard lock(mutex_);
  return FindLocked(*name);
}

Fleet::Member* Fleet::FindLocked(std::string_view name) {
  for (Member& member : members_) {
    if (!member.removed && member.brief.Answers(name)) return &member;
  }
  for (Member& member : members_) {  // adapters that were loaded while serving
    if (!member.removed && member.stack && member.stack->served().Answers(name)) return &member;
  }
  // Ollama's clients put a tag behind the name.
  constexpr std::string_view kTag = ":latest";
  return name.ends_with(kTag) ? FindLocked(name.substr(0, name.size() - kTag.size())) : nullptr;
}

// Is let go of when the exchange ends: then it is a guest no more, if it was one.
std::shared_ptr<void> Fleet::MakeGuestToken(Member* member, const http::Exchange* exchange) {
  return std::shared_ptr<void>(nullptr, [this, member, exchange](void*) {
    const std::lock_guard lock(mutex_);
    if (member->guests.erase(exchange) == 0) return;
    member->last_use_ms = NowMs();
    changed_.notify_all();
  });
}

void Fleet::Handle(size_t route, const http::ExchangePtr& exchange) {
  // What runs on the server's thread (is it alive?) is no model's, and must not wait for one.
  const http::Router::Route& of_front = front().router().routes()[route];
  if (!several() || of_front.run_on == http::RunOn::kServer) return of_front.handler(exchange);
  std::string name;
  Member* const member = Find(exchange->request(), &name);
  if (member == nullptr) {
    const std::vector<api::ModelBrief> models = List();
    return api::Refuse(exchange, api::ModelNotFound(name, models));
  }
  {
    std::unique_lock lock(mutex_);
    const bool needs = needs_weights_[route];
    const bool let_in = member->guests.contains(exchange.get());
    if (!let_in && member->place != Place::kAwake && (needs || member->stack == nullptr)) {
      if (!member->error.empty() && Time::now() < member->retry_at) {
        const std::string error = member->error;
        lock.unlock();
        return api::Refuse(
            exchange, {503, "the model '" + member->brief.id + "' could not be loaded: " + error});
      }
      if (member->waiting.size() >= kWaitingMax) {
        lock.unlock();
        return api::Refuse(exchange, {429, "too many requests wait for the model '" +
                                               member->brief.id + "'; try again later"});
      }
      exchange->Keep(MakeGuestToken(member, exchange.get()));
      member->waiting.push_back({exchange.get(), exchange->Park()});
      WantLocked(member);
      return;
    }
    if (needs) {
      member->last_use_ms = NowMs();  // to look at a model is not to use it
      if (const auto keep = KeepAliveOf(front().service(), exchange->request())) {
        member->keep_alive_ms = *keep;
      }
      if (member->guests.insert(exchange.get()).second) {
        exchange->Keep(MakeGuestToken(member, exchange.get()));
      }
    }
  }
  member->stack->router().routes()[route].handler(exchange);
}

std::vector<api::ModelBrief> Fleet::List() const {
  const std::lock_guard lock(mutex_);
  std::vector<api::ModelBrief> models;
  for (const Member& member : members_) {
    if (member.removed) continue;
    api::ModelBrief& brief =
        models.emplace_back(member.stack ? member.stack->served().Brief() : member.brief);
    brief.created = member.brief.created;
    brief.error = member.error;
    brief.status =
        NameOf(member.place == Place::kAwake || member.place == Place::kLeaving,
               member.place == Place::kLoading, member.stack != nullptr, !member.error.empty());
  }
  return models;
}

Status Fleet::Load(const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (Member& member : members_) {
    if (name.empty() || member.removed || !member.brief.Answers(name)) continue;
    if (member.place != Place::kAwake) WantLocked(&member);
    member.retry_at = Time::now();
    member.unwanted = false;
    changed_.notify_all();
    return OkStatus();
  }
  return NotFound("there is no model '" + name + "' here");
}

Status Fleet::Unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (Member& member : members_) {
    if (name.empty() || member.removed || !member.brief.Answers(name)) continue;
    member.unwanted = member.place == Place::kAwake;
    changed_.notify_all();
    return OkStatus();
  }
  return NotFound("there is no model '" + name + "' here");
}

void Fleet::Watch(const http::ExchangePtr& exchange) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(watchers_, [](const auto& one) { return one.expired(); });
    if (watchers_.size() < kWatchersMax) {
      watchers_.push_back(exchange);
      exchange->StartStream({});
      // The stream itself holds the exchange: it ends when the client leaves.
      exchange->OnClose([exchange] {});
    } else {
      return exchange->Respond(
          api::ErrorResponse({429, "too many clients watch the models"}, &exchange->request()));
    }
  }
  exchange->Send(FormatStates());
}

// Called by the thread that reads the weights.
void Fleet::ShowProgress(Member* member, int percent) {
  {
    const std::lock_guard lock(mutex_);
    if (member->percent == percent) return;
    member->percent = percent;
  }
  TellWatchers();
}

void Fleet::EndWatches() {
  std::vector<std::weak_ptr<http::Exchange>> watchers;
  {
    const std::lock_guard lock(mutex_);
    watchers.swap(watchers_);
  }
  for (const auto& one : watchers) {
    if (const auto exchange = one.lock()) exchange->End();
  }
}

std::string Fleet::FormatStates() const {
  std::map<std::string, int> percents;
  {
    const std::lock_guard lock(mutex_);
    for (const Member& member : members_) {
      if (member.place == Place::kLoading) percents[member.brief.id] = member.percent;
    }
  }
  std::string text = "data: ";
  JsonWriter json(&text);
  json.BeginObject().Key("models").BeginArray();
  for (const api::ModelBrief& model : List()) {
    json.BeginObject().Member("id", model.id).Key("status").BeginObject();
    json.Member("value", model.status);
    const auto percent = percents.find(model.id);
    if (percent != percents.end()) json.Member("progress", percent->second / 100.0);
    if (!model.error.empty()) json.Member("failed", true).Member("error", model.error);
    json.EndObject().EndObject();
  }
  json.EndArray().EndObject();
  return text + "\n\n";
}

// Without an event: what the models are now.
void Fleet::Tell(const std::string& event) {
  std::vector<std::shared_ptr<http::Exchange>> watchers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : watchers_) {
      if (auto exchange = one.lock()) watchers.push_back(std::move(exchange));
    }
  }
  if (watchers.empty()) return;
  const std::string text = event.empty() ? FormatStates() : event;
  for (const auto& exchange : watchers) exchange->Send(text);
}

void Fleet::WriteMetrics(api::Exposition* page) const {
  if (!several()) return;
  const std::lock_guard lock(mutex_);
  const auto label = [](const std::string& device) {
    return "device=\"" + api::EscapeLabel(device) + "\"";
  };
  page->Head("reprise_models_memory_budget_bytes", "gauge",
             "Memory of the device for weights and state of all models there.");
  for (const auto& [device, budget] : shared_.budgets.all()) {
    page->Sample("reprise_models_memory_budget_bytes", label(device), budget.bytes);
  }
  page->Head("reprise_models_weight_bytes", "gauge",
             "Memory of the device that weights and steps of loaded models take.");
  for (const auto& [device, budget] : shared_.budgets.all()) {
    page->Sample("reprise_models_weight_bytes", label(device), AwakeBytesLocked(device));
  }
  page->Counter("reprise_models_swaps_total", "Models whose weights left memory.", "", swaps_);
  page->Head("reprise_model_loaded", "gauge", "1 while the weights of the model are in memory.");
  for (const Member& member : members_) {
    if (member.removed) continue;
    const bool awake = member.place == Place::kAwake || member.place == Place::kLeaving;
    page->Sample("reprise_model_loaded", "model=\"" + api::EscapeLabel(member.brief.id) + "\"",
                 awake ? 1 : 0);
  }
}

// The fleet's own thread: brings what is wanted, one model after another, and shares out states.
void Fleet::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait_for(lock, kTick, [this] { return stop_ || NextWantedLocked() != nullptr; });
    if (stop_) return;
    Member* const wanted = NextWantedLocked();
    lock.unlock();
    if (wanted != nullptr) {
      const Status brought = Bring(wanted);
      if (!brought.ok()) {
        Log(LogLevel::kError,
            "the model '" + wanted->brief.id + "' was not loaded: " + brought.message());
      }
    } else {
      Tick();
    }
    lock.lock();
  }
}

void Fleet::WantLocked(Member* member) {
  if (!member->wanted) member->wanted_at = ++wants_;
  member->wanted = true;
  changed_.notify_all();
}

Fleet::Member* Fleet::NextWantedLocked() {
  Member* next = nullptr;
  for (Member& member : members_) {
    if (!member.wanted || (!member.error.empty() && Time::now() < member.retry_at)) continue;
    if (next == nullptr || member.wanted_at < next->wanted_at) next = &member;
  }
  return next;
}

void Fleet::Tick() {
  if (!several()) return;
  Member* leaves = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (Member& member : members_) {
      const bool leaving = member.unwanted || IsOverdueLocked(member);
      if (leaving && member.place == Place::kAwake) leaves = &member;
    }
  }
  if (leaves != nullptr) PutToSleep(leaves);
  for (const auto& [device, budget] : shared_.budgets.all()) ShareOut(device);
}

bool Fleet::IsOverdueLocked(const Member& member) {
  return member.keep_alive_ms > 0 && !member.options.pin && member.guests.empty() &&
         NowMs() - member.last_use_ms > member.keep_alive_ms;
}

// Weights that are in the device's memory, or on their way.
size_t Fleet::AwakeBytesLocked(const std::string& device) const {
  size_t bytes = 0;
  for (const Member& member : members_) {
    if (member.device != device) continue;
    if (member.place != Place::kUnloaded && member.place != Place::kAsleep) {
      bytes += member.awake_bytes;
    }
  }
  return bytes;
}

// What is there however many models go: those that are pinned, and the one that comes.
size_t Fleet::StayingBytesLocked(const Member& coming) const {
  size_t bytes = 0;
  for (const Member& member : members_) {
    const bool pinned = member.options.pin && member.place == Place::kAwake;
    if (member.device != coming.device || (!pinned && &member != &coming)) continue;
    bytes += member.awake_bytes + member.least_state;
  }
  return bytes;
}

// What the states of all models must have that are awake, and of one that comes.
size_t Fleet::LeastStatesLocked(const Member& coming) const {
  size_t bytes = 0;
  for (const Member& member : members_) {
    const bool awake = member.place == Place::kAwake || member.place == Place::kLeaving;
    if (member.device != coming.device || (!awake && &member != &coming)) continue;
    bytes += member.least_state;
  }
  return bytes;
}

// Of the models that may go for another one, the one that costs least: soon read again, large,
// unused for long. One that answers requests goes only if all do; it is asked to, and new requests
// wait.
Fleet::Member* Fleet::VictimLocked(const Member* coming) {
  Member* best = nullptr;
  double least = 0;
  for (Member& member : members_) {
    if (&member == coming || member.device != coming->device) continue;
    if (member.options.pin || member.place != Place::kAwake) continue;
    const double idle_ms = static_cast<double>(NowMs() - member.last_use_ms) + 1;
    const double cost = (member.guests.empty() ? 1 : 1e12) * (member.load_ms + 1) /
                        (idle_ms * static_cast<double>(member.awake_bytes + 1));
    if (best != nullptr && cost >= least) continue;
    best = &member;
    least = cost;
  }
  return best;
}

// The requests that it serves are answered; new ones wait. False: the server ends.
bool Fleet::Drain(Member* member) {
  std::unique_lock lock(mutex_);
  member->place = Place::kLeaving;
  changed_.wait(lock, [&] { return stop_ || member->guests.empty(); });
  return !stop_;
}

void Fleet::PutToSleep(Member* member) {
  if (!Drain(member)) return;
  DropWeights(member);
  {
    const std::lock_guard lock(mutex_);
    member->place = Place::kAsleep;
    member->unwanted = false;
    ++swaps_;
  }
  Log(LogLevel::kInfo, "the weights of '" + member->brief.id + "' left memory; its state stays");
  TellWatchers();
}

// What its engine still does is done first.
void Fleet::DropWeights(Member* member) {
  const auto asleep = std::make_shared<std::promise<void>>();
  std::future<void> done = asleep->get_future();
  member->stack->Sleep([asleep] { asleep->set_value(); });
  done.wait();
}

// Makes room for `bytes` of weights and for the least state of every model that is awake then.
// Nobody goes for a model that has no room even so.
Status Fleet::MakeRoom(Member* member, size_t bytes) {
  const size_t all = shared_.budgets.Of(member->device).bytes;
  for (;;) {
    Member* victim = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return Cancelled("the server ends");
      const size_t before = std::exchange(member->awake_bytes, bytes);  // it is kLoading: counted
      if (AwakeBytesLocked(member->device) + LeastStatesLocked(*member) <= all) break;
      victim = StayingBytesLocked(*member) <= all ? VictimLocked(member) : nullptr;
      if (victim == nullptr) {
        member->awake_bytes = before;
        return ResourceExhausted("it takes " + FormatBytes(bytes + member->least_state) +
                                 ", and beside the models that must stay the " + FormatBytes(all) +
                                 " of all models on " + member->device +
                                 " do not hold it; raise --memory-mib or shorten --context");
      }
    }
    PutToSleep(victim);
  }
  return MakeStateRoom(member);
}

// A model that comes has the state of one request at least. Where what others run leaves less, they
// pause one after another: they answer what they have, give up what is above their share, and go
// on. So it waits for requests that are there already, and for none that come later.
Status Fleet::MakeStateRoom(Member* member) {
  const size_t least = member->least_state;
  const auto roomy = [&] {
    return ShareOut(member->device) && (!member->stack || member->state_budget >= least);
  };
  bool done = roomy();
  std::vector<Member*> others;
  {
    const std::lock_guard lock(mutex_);
    for (Member& other : members_) others.push_back(&other);
  }
  for (Member* other : others) {
    if (done) return OkStatus();
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return Cancelled("the server ends");
      if (other == member || other->place != Place::kAwake) continue;
      if (other->device != member->device) continue;
    }
    if (!Drain(other)) return Cancelled("the server ends");
    done = roomy();
    Resume(other);
  }
  if (!done && member->stack) member->state_budget = member->stack->SetStateBudget(least);
  return OkStatus();
}

// Shares a device's memory out among the states there. Budgets that shrink are set first, so that
// together they are never above what there is; false: what runs keeps them above it.
bool Fleet::ShareOut(const std::string& device) {
  std::vector<StateShare> shares;
  std::vector<Member*> members;
  size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return true;
    size_t taken = AwakeBytesLocked(device);
    for (Member& member : members_) {
      if (member.device != device) continue;
      // One that is read for the first time has its part before anybody else.
      if (!member.stack && member.place == Place::kLoading) taken += member.least_state;
      if (!member.stack) continue;
      const bool awake = member.place != Place::kAsleep;
      shares.push_back(
          {awake, member.least_state, member.stack->state_bytes(), member.last_use_ms});
      members.push_back(&member);
    }
    const size_t all = shared_.budgets.Of(device).bytes;
    bytes = all - std::min(all, taken);
  }
  ShareOutState(bytes, shares);
  size_t taken = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    size_t& budget = members[i]->state_budget;
    if (shares[i].budget < budget) budget = members[i]->stack->SetStateBudget(shares[i].budget);
    taken += budget;
  }
  const bool fits = taken <= bytes;
  for (size_t i = 0; i < members.size(); ++i) {
    size_t& budget = members[i]->state_budget;
    if (shares[i].budget <= budget || taken >= bytes) continue;
    const size_t before = budget;
    budget = members[i]->stack->SetStateBudget(before +
                                               std::min(shares[i].budget - before, bytes - taken));
    taken += budget - before;
  }
  return fits;
}

// Loads a model, or its weights, and lets in those who waited.
Status Fleet::Bring(Member* member) {
  {
    const std::lock_guard lock(mutex_);
    member->wanted = false;
    if (member->place == Place::kAwake) return OkStatus();
    member->place = Place::kLoading;
    member->percent = 0;
  }
  TellWatchers();
  const Status filled = Fill(member);
  Settle(member, filled);
  TellWatchers();
  if (filled.ok() && several()) ShareOut(member->device);
  return filled;
}

// What is free can be less than what the budget leaves: others use the device, too, and a model may
// take more than its files tell. Then one more of its neighbours goes, and it is tried again.
Status Fleet::ReadWithRoom(Member* member, const std::function<Status()>& read) {
  for (;;) {
    const Status done = read();
    if (done.code() != StatusCode::kResourceExhausted || !several()) return done;
    Member* victim = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return Cancelled("the server ends");
      victim = VictimLocked(member);
    }
    if (victim == nullptr) return done;
    PutToSleep(victim);
  }
}

Status Fleet::Fill(Member* member) {
  const auto begin = Time::now();
  if (several()) {
    size_t bytes = member->awake_bytes;
    if (member->stack == nullptr) {
      REPRISE_ASSIGN(const ModelStack::Needs needs, ModelStack::Foresee(member->options));
      bytes = needs.weight_bytes + shared_.budgets.Of(member->device).working;
      const std::lock_guard lock(mutex_);
      member->least_state = needs.state_bytes;
    }
    REPRISE_TRY(MakeRoom(member, bytes));
  }
  if (member->stack != nullptr) {
    REPRISE_TRY(ReadWithRoom(member, [&] { return member->stack->Wake(); }));
  } else {
    std::unique_ptr<ModelStack> stack;
    REPRISE_TRY(ReadWithRoom(member, [&]() -> Status {
      REPRISE_ASSIGN(stack, ModelStack::Build(member->options, shared_));
      return OkStatus();
    }));
    const size_t budget = several() ? stack->SetStateBudget(0) : 0;  // until there is room
    const size_t bytes = stack->awake_bytes();
    {
      const std::lock_guard lock(mutex_);
      member->least_state = stack->least_state_bytes();
      member->stack = std::move(stack);
      member->state_budget = budget;
    }
    const Status room = several() ? MakeRoom(member, bytes) : OkStatus();
    if (!room.ok()) {
      DropWeights(member);
      return room;
    }
  }
  const std::lock_guard lock(mutex_);
  member->load_ms = std::chrono::duration<double, std::milli>(Time::now() - begin).count();
  return OkStatus();
}

// It is there: who waits for it is its guest from now on, and is to be called.
std::vector<Fleet::Waiting> Fleet::LetInLocked(Member* member) {
  member->place = Place::kAwake;
  member->wanted = false;
  for (const Waiting& one : member->waiting) member->guests.insert(one.exchange);
  return std::exchange(member->waiting, {});
}

// It goes on after Drain.
void Fleet::Resume(Member* member) {
  std::vector<Waiting> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting = LetInLocked(member);
  }
  for (const Waiting& one : waiting) one.go();
}

void Fleet::Settle(Member* member, const Status& status) {
  std::vector<Waiting> waiting;
  {
    const std::lock_guard lock(mutex_);
    member->error = status.ok() ? "" : status.message();
    member->retry_at = Time::now() + kRetryAfter;
    member->last_use_ms = NowMs();
    if (status.ok()) {
      waiting = LetInLocked(member);
    } else {
      member->place = member->stack == nullptr ? Place::kUnloaded : Place::kAsleep;
      member->wanted = false;
      waiting.swap(member->waiting);
    }
  }
  for (const Waiting& one : waiting) one.go();
}

}  // namespace reprise::cli
