// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "http/exchange.h"

namespace reprise::http {

// Where a handler runs: on the server thread (it must not wait), on the thread for what is quick
// (numbers of the server), or on a worker (it may parse, render and tokenise).
enum class RunOn { kServer, kQuick, kWorker };

// Routes by method and path. A path that ends in "/*" covers everything below it.
//
// Thread safety: immutable once the server runs.
class Router {
 public:
  struct Route {
    std::string method;
    std::string path;
    RunOn run_on = RunOn::kWorker;
    Handler handler;
  };
  struct Match {
    const Route* route = nullptr;
    std::string allowed;  // methods the path has, when the method was not among them
  };

  void Add(std::string method, std::string path, RunOn run_on, Handler handler);
  // HEAD finds the routes of GET. A slash at the end of a path is passed over.
  Match Find(std::string_view method, std::string_view path) const;
  const std::vector<Route>& routes() const { return routes_; }
  // For a path that has no route: one whose end it is, or that it ends with ("/chat/completions"
  // and "/v1/v1/chat/completions" for "/v1/chat/completions"). Empty if there is none.
  std::string FindSimilar(std::string_view path) const;

 private:
  Match FindExact(std::string_view method, std::string_view path) const;

  std::vector<Route> routes_;
};

}  // namespace reprise::http
