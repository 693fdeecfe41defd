// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/responses/archive.h"
#include "tier/documents/document_store.h"

namespace reprise::cli {

// Responses as documents in a folder: a tenant is an owner, an id is a name.
class DiskArchive final : public api::responses::ResponseArchive {
 public:
  static Result<std::shared_ptr<api::responses::ResponseArchive>> Open(
      const DocumentOptions& options, const StateKeys& keys) {
    REPRISE_ASSIGN(std::unique_ptr<DocumentStore> store, DocumentStore::Open(options, keys));
    return std::shared_ptr<api::responses::ResponseArchive>(new DiskArchive(std::move(store)));
  }

  void Put(std::string_view tenant, std::string_view id, std::string content) override {
    store_->Put(tenant, id, std::move(content));
  }
  std::optional<std::string> Get(std::string_view tenant, std::string_view id) override {
    return store_->Get(tenant, id);
  }
  bool Remove(std::string_view tenant, std::string_view id) override {
    return store_->Remove(tenant, id);
  }

 private:
  explicit DiskArchive(std::unique_ptr<DocumentStore> store) : store_(std::move(store)) {}
  const std::unique_ptr<DocumentStore> store_;
};

}  // namespace reprise::cli
