// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/tenants.h"
#include "batches/batch.h"
#include "batches/file_store.h"
#include "batches/inner_exchange.h"

namespace reprise::batches {

// What files and batches know a tenant by: its name and a mark of its key, so that another key that
// gets the name does not see them.
std::string OwnerOf(const api::Tenant& tenant);
std::string NameOf(const std::string& owner);

// Runs batches, on threads of its own that wait more than they work.
//
// 1. A batch is run once, line by line, at most four lines at a time; at most four batches run, of
//    different tenants; the others wait in the order they came.
// 2. Answers are written as they come, behind each other, to files of the batch's own. A process
//    that starts again goes on behind the last line that was written whole: no line is answered
//    twice, and none is left out.
// 3. A line that finds the server full, or its key's quota spent, is asked again later.
// 4. A batch that is not done when its window is over expires: what was answered stays.
//
// Thread safety: all methods from any thread.
class BatchRunner {
 public:
  // Whether an owner is a tenant of this server still.
  using Known = std::function<bool(const std::string& owner)>;

  // Continues what an earlier process left in `folder`. `files` and `requests` must outlive it.
  static Result<std::unique_ptr<BatchRunner>> Open(const std::string& folder, FileStore* files,
                                                   InnerRequests requests, Known known);
  // Stops between two lines; what is not done goes on after the next start.
  ~BatchRunner();

  // Fails if the tenant has too many.
  Result<Batch> Add(Batch batch);
  std::vector<Batch> List(const std::string& tenant) const;
  std::optional<Batch> Find(const std::string& tenant, const std::string& id) const;
  // Its lines under way are cancelled. Nothing: there is no such batch.
  std::optional<Batch> Cancel(const std::string& tenant, const std::string& id);

 private:
  struct Run;  // of one batch

  BatchRunner(std::string folder, FileStore* files, InnerRequests requests, Known known);

  Status Scan();
  void Serve();
  std::optional<Batch> TakeNext();
  void RunBatch(Batch batch);
  Status ReadLines(const Batch& batch, Run* run, int64_t* wrong_line) const;
  void AskLines(const Batch& batch, const std::shared_ptr<Run>& run);
  void WriteAnswers(const Batch& batch, Run* run, std::unique_lock<std::mutex>* lock);
  void AskOne(const Batch& batch, const std::shared_ptr<Run>& run, size_t line);
  void Finish(Batch batch);
  std::string Keep(const Batch& batch, const char* part);
  void Save(const Batch& batch);
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_;
  FileStore* const files_;
  InnerRequests requests_;
  const Known known_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<std::string, Batch> batches_;              // by id
  std::vector<std::string> active_;                   // tenants whose batch runs
  std::map<std::string, std::shared_ptr<Run>> runs_;  // by id of the batch
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace reprise::batches
