// SPDX-License-Identifier: Apache-2.0
#include "batches/runner.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <set>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/mapped_file.h"
#include "base/sha256.h"

namespace reprise::batches {
namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 4;
constexpr size_t kLinesAtOnce = 4;
constexpr size_t kLinesMax = 50'000;
constexpr size_t kBatchesOfTenantMax = 1000;
constexpr size_t kRecordBytesMax = 1 << 20;
constexpr size_t kAnswersBytesMax = size_t{4} << 30;
constexpr int64_t kRetrySecondsMax = 60;
constexpr int kCancelled = 499;
constexpr char kEnding[] = ".json";
constexpr char kOutput[] = ".output";
constexpr char kErrors[] = ".errors";

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

// Appends a whole line; what was written is on the disk when it returns.
bool Append(const std::string& path, const std::string& line) {
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) return false;
  bool written = std::fwrite(line.data(), 1, line.size(), file) == line.size();
  written = std::fflush(file) == 0 && written;
  written = ::fdatasync(::fileno(file)) == 0 && written;
  return std::fclose(file) == 0 && written;
}

// Seconds until a refused line is asked again; nothing: it is not to be.
std::optional<int64_t> RetryAfter(const http::Response& response) {
  if (response.status != 429 && response.status != 503) return std::nullopt;
  int64_t seconds = 1;
  for (const auto& [name, value] : response.headers) {
    if (!http::EqualIgnoringCase(name, "retry-after")) continue;
    (void)std::from_chars(value.data(), value.data() + value.size(), seconds);
  }
  return std::clamp<int64_t>(seconds, 1, kRetrySecondsMax);
}

}  // namespace

// What a batch needs while it runs.
struct BatchRunner::Run {
  struct Answer {
    size_t line;
    std::string request_id;
    http::Response response;
  };

  std::vector<std::string> ids;  // of the lines, in order
  std::vector<std::string> bodies;
  std::set<std::string> answered;  // before this process
  int64_t completed = 0;           // of all
  int64_t failed = 0;
  bool cancelled = false;
  bool broken = false;                                // answers cannot be written
  std::map<size_t, InnerRequests::Cancel> under_way;  // until their answers are written
  std::vector<Answer> answers;                        // not written yet
  std::vector<std::pair<size_t, std::chrono::steady_clock::time_point>> again;
};

std::string OwnerOf(const api::Tenant& tenant) {
  return tenant.name + ":" + Sha256Hex("owner " + tenant.salt).substr(0, 16);
}

std::string NameOf(const std::string& owner) { return owner.substr(0, owner.rfind(':')); }

Result<std::unique_ptr<BatchRunner>> BatchRunner::Open(const std::string& folder, FileStore* files,
                                                       InnerRequests requests, Known known) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Internal("cannot make the folder " + folder + ": " + error.message());
  fs::permissions(folder, fs::perms::owner_all, error);
  std::unique_ptr<BatchRunner> runner(
      new BatchRunner(folder, files, std::move(requests), std::move(known)));
  REPRISE_TRY(runner->Scan());
  for (int i = 0; i < kThreads; ++i) {
    runner->threads_.emplace_back([one = runner.get()] { one->Serve(); });
  }
  return runner;
}

BatchRunner::BatchRunner(std::string folder, FileStore* files, InnerRequests requests, Known known)
    : folder_(std::move(folder)),
      files_(files),
      requests_(std::move(requests)),
      known_(std::move(known)) {}

BatchRunner::~BatchRunner() {
  std::vector<InnerRequests::Cancel> under_way;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (const auto& [id, run] : runs_) {
      for (const auto& [line, cancel] : run->under_way) under_way.push_back(cancel);
    }
  }
  changed_.notify_all();
  for (const auto& cancel : under_way) cancel();
  for (std::thread& thread : threads_) thread.join();
}

Status BatchRunner::Scan() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    if (entry.path().extension() != kEnding) continue;
    const auto text = ReadFile(entry.path().string(), kRecordBytesMax);
    auto batch = text.ok() ? ParseRecord(*text) : Result<Batch>(text.status());
    if (batch.ok() && entry.path().stem() == batch->id) {
      batches_.emplace(batch->id, std::move(*batch));
    } else {
      Log(LogLevel::kWarning, entry.path().string() + " is not a batch; it is passed over");
    }
  }
  if (error) return Internal("cannot read the folder " + folder_ + ": " + error.message());
  return OkStatus();
}

Result<Batch> BatchRunner::Add(Batch batch) {
  batch.id = NewId("batch_");
  batch.created_at = NowSeconds();
  const std::lock_guard lock(mutex_);
  const auto of_tenant = std::count_if(batches_.begin(), batches_.end(), [&](const auto& one) {
    return one.second.tenant == batch.tenant;
  });
  if (static_cast<size_t>(of_tenant) >= kBatchesOfTenantMax) {
    // The oldest that has ended makes room.
    auto oldest = batches_.end();
    for (auto one = batches_.begin(); one != batches_.end(); ++one) {
      if (one->second.tenant != batch.tenant || !one->second.ended()) continue;
      if (oldest == batches_.end() || one->second.created_at < oldest->second.created_at) {
        oldest = one;
      }
    }
    if (oldest == batches_.end()) {
      return ResourceExhausted("there are " + std::to_string(of_tenant) +
                               " batches that have not ended; wait, or cancel some");
    }
    std::error_code error;
    fs::remove(PathOf(oldest->first + kEnding), error);
    batches_.erase(oldest);
  }
  Save(batch);
  batches_.emplace(batch.id, batch);
  changed_.notify_all();
  return batch;
}

std::vector<Batch> BatchRunner::List(const std::string& tenant) const {
  std::vector<Batch> batches;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, batch] : batches_) {
      if (batch.tenant == tenant) batches.push_back(batch);
    }
  }
  std::stable_sort(batches.begin(), batches.end(),
                   [](const Batch& a, const Batch& b) { return a.created_at > b.created_at; });
  return batches;
}

std::optional<Batch> BatchRunner::Find(const std::string& tenant, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = batches_.find(id);
  if (found == batches_.end() || found->second.tenant != tenant) return std::nullopt;
  return found->second;
}

std::optional<Batch> BatchRunner::Cancel(const std::string& tenant, const std::string& id) {
  std::vector<InnerRequests::Cancel> under_way;
  std::optional<Batch> batch;
  {
    const std::lock_guard lock(mutex_);
    const auto found = batches_.find(id);
    if (found == batches_.end() || found->second.tenant != tenant) return std::nullopt;
    if (!found->second.ended()) {
      found->second.status = "cancelling";
      Save(found->second);
      if (const auto run = runs_.find(id); run != runs_.end()) {
        run->second->cancelled = true;
        for (const auto& [line, cancel] : run->second->under_way) under_way.push_back(cancel);
      }
    }
    batch = found->second;
  }
  changed_.notify_all();
  for (const auto& cancel : under_way) cancel();
  return batch;
}

// With the lock, or before there are threads.
void BatchRunner::Save(const Batch& batch) {
  const std::string text = FormatRecord(batch);
  const Status saved =
      WriteFileAtomically(PathOf(batch.id + kEnding), std::as_bytes(std::span(text)));
  if (!saved.ok()) Log(LogLevel::kError, "a batch cannot be stored: " + saved.message());
}

void BatchRunner::Serve() {
  while (auto batch = TakeNext()) RunBatch(std::move(*batch));
}

// The oldest whose tenant has none that runs. Waits; nothing: the server stops.
std::optional<Batch> BatchRunner::TakeNext() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stop_) return std::nullopt;
    const Batch* next = nullptr;
    for (const auto& [id, batch] : batches_) {
      if (batch.ended() || std::ranges::count(active_, batch.tenant) > 0) continue;
      if (next == nullptr || batch.created_at < next->created_at) next = &batch;
    }
    if (next != nullptr) {
      active_.push_back(next->tenant);
      return *next;
    }
    changed_.wait(lock);
  }
}

// Reads the input, and what was answered before.
Status BatchRunner::ReadLines(const Batch& batch, Run* run, int64_t* wrong_line) const {
  const auto file = files_->Find(batch.tenant, batch.input_file_id);
  if (!file) return NotFound("the input file is not there any more");
  REPRISE_ASSIGN(const std::string text, files_->Read(*file));
  std::set<std::string> seen;
  for (const std::string_view line : SplitLines(text)) {
    ++*wrong_line;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    REPRISE_ASSIGN(BatchLine read, ParseLine(line, batch.endpoint));
    if (!seen.insert(read.custom_id).second) {
      return InvalidArgument("two lines have the custom_id '" + read.custom_id + "'");
    }
    if (seen.size() > kLinesMax) {
      return InvalidArgument("a batch may have " + std::to_string(kLinesMax) + " lines");
    }
    run->ids.push_back(std::move(read.custom_id));
    run->bodies.push_back(std::move(read.body));
  }
  *wrong_line = 0;
  if (run->ids.empty()) return InvalidArgument("the input file has no lines");
  const std::pair<const char*, int64_t*> parts[] = {{kOutput, &run->completed},
                                                    {kErrors, &run->failed}};
  for (const auto& [part, count] : parts) {
    const std::string path = PathOf(batch.id + part);
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    REPRISE_ASSIGN(const std::string answers, ReadFile(path, kAnswersBytesMax));
    const size_t whole = answers.rfind('\n') + 1;  // none: 0
    fs::resize_file(path, whole, error);           // what was cut off is asked again
    for (const std::string_view line : SplitLines(std::string_view(answers).substr(0, whole))) {
      const std::string id = AnsweredId(line);
      if (!id.empty() && run->answered.insert(id).second) ++*count;
    }
  }
  return OkStatus();
}

void BatchRunner::RunBatch(Batch batch) {
  const auto run = std::make_shared<Run>();
  int64_t wrong_line = 0;
  const Status read =
      batch.status == "cancelling" ? OkStatus() : ReadLines(batch, run.get(), &wrong_line);
  if (!read.ok()) {
    batch.status = "failed";
    batch.error = read.message();
    batch.error_line = wrong_line;
    return Finish(std::move(batch));
  }
  {
    const std::lock_guard lock(mutex_);
    Batch& shown = batches_[batch.id];
    run->cancelled = shown.status == "cancelling";
    if (!run->cancelled) shown.status = "in_progress";
    if (shown.in_progress_at == 0) shown.in_progress_at = NowSeconds();
    shown.total = static_cast<int64_t>(run->ids.size());
    runs_[batch.id] = run;
    Save(shown);
    batch = shown;
  }
  AskLines(batch, run);
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;  // the next process goes on
    batch.completed = run->completed;
    batch.failed = run->failed;
  }
  if (run->broken) {
    batch.status = "failed";
    batch.error = "the answers cannot be written; is the disk full?";
  } else if (run->cancelled) {
    batch.status = "cancelled";
  } else {
    batch.status = run->completed + run->failed < batch.total ? "expired" : "completed";
  }
  Finish(std::move(batch));
}

// Until all lines are answered, or there is a reason to stop.
void BatchRunner::AskLines(const Batch& batch, const std::shared_ptr<Run>& run) {
  using Time = std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  size_t next = 0;
  for (;;) {
    WriteAnswers(batch, run.get(), &lock);
    const bool over = stop_ || run->cancelled || run->broken || NowSeconds() >= batch.expires_at;
    if (over && run->under_way.empty()) return;
    // Those that were refused come first, when their time has come.
    std::optional<size_t> line;
    if (!over && run->under_way.size() < kLinesAtOnce) {
      const auto due = std::ranges::find_if(
          run->again, [](const auto& one) { return one.second <= Time::now(); });
      if (due != run->again.end()) {
        line = due->first;
        run->again.erase(due);
      }
      while (!line && next < run->ids.size()) {
        if (run->answered.count(run->ids[next]) == 0) line = next;
        ++next;
      }
    }
    if (line) {
      run->under_way.emplace(*line, [] {});
      lock.unlock();
      AskOne(batch, run, *line);
      lock.lock();
      continue;
    }
    if (run->under_way.empty() && run->again.empty() && next == run->ids.size()) return;
    if (run->answers.empty()) changed_.wait_for(lock, std::chrono::milliseconds(200));
  }
}

// Writes what has come. Without the lock: a disk may take its time.
void BatchRunner::WriteAnswers(const Batch& batch, Run* run, std::unique_lock<std::mutex>* lock) {
  const std::vector<Run::Answer> answers = std::exchange(run->answers, {});
  for (const Run::Answer& answer : answers) {
    const http::Response& response = answer.response;
    const bool good = response.status == 200;
    const auto retry = RetryAfter(response);
    const bool write = !retry && response.status != kCancelled && !stop_;
    bool written = true;
    if (write) {
      lock->unlock();
      written = Append(PathOf(batch.id + (good ? kOutput : kErrors)),
                       FormatAnswer(batch.id, run->ids[answer.line], response.status,
                                    answer.request_id, response.body));
      lock->lock();
    }
    run->under_way.erase(answer.line);
    if (retry) {
      const auto due = std::chrono::steady_clock::now() + std::chrono::seconds(*retry);
      run->again.emplace_back(answer.line, due);
    }
    if (!write) continue;
    run->broken = run->broken || !written;
    ++(good ? run->completed : run->failed);
    Batch& shown = batches_[batch.id];
    shown.completed = run->completed;
    shown.failed = run->failed;
  }
}

void BatchRunner::AskOne(const Batch& batch, const std::shared_ptr<Run>& run, size_t line) {
  http::Request request;
  request.method = "POST";
  request.path = batch.endpoint;
  request.headers = {{"Content-Type", "application/json"}};
  request.body = run->bodies[line];
  request.id = NewId("req_");
  request.as_tenant = NameOf(batch.tenant);
  // Called by any thread: the batch's own writes it.
  auto answered = [this, run, line, id = request.id](http::Response response) {
    const std::lock_guard lock(mutex_);
    run->answers.push_back({line, id, std::move(response)});
    changed_.notify_all();
  };
  InnerRequests::Cancel cancel = requests_.Ask(std::move(request), std::move(answered));
  bool late = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = run->under_way.find(line);
    if (found == run->under_way.end()) return;  // it is answered already
    found->second = cancel;
    late = stop_ || run->cancelled;
  }
  if (late) cancel();
}

// The file of answers becomes one of the tenant's. Empty: there were none.
std::string BatchRunner::Keep(const Batch& batch, const char* part) {
  const std::string path = PathOf(batch.id + part);
  std::error_code error;
  if (!fs::exists(path, error)) return "";
  const auto text = ReadFile(path, kAnswersBytesMax);
  StoredFile file;
  file.tenant = batch.tenant;
  file.name = batch.id + part + ".jsonl";
  file.purpose = "batch_output";
  const auto kept = text.ok() ? files_->Add(file, *text) : Result<StoredFile>(text.status());
  if (!kept.ok()) {
    Log(LogLevel::kError,
        "the answers of " + batch.id + " stay in " + path + ": " + kept.status().message());
    return "";
  }
  fs::remove(path, error);
  return kept->id;
}

void BatchRunner::Finish(Batch batch) {
  batch.output_file_id = Keep(batch, kOutput);
  batch.error_file_id = Keep(batch, kErrors);
  if (batch.status == "cancelling") batch.status = "cancelled";
  batch.ended_at = NowSeconds();
  const std::lock_guard lock(mutex_);
  runs_.erase(batch.id);
  std::erase(active_, batch.tenant);
  batches_[batch.id] = batch;
  Save(batch);
  changed_.notify_all();
}

}  // namespace reprise::batches
