// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "hub/net/client.h"
#include "hub/net/url.h"

namespace reprise::hub {

// Which hub, which cache and whose token: read from the environment variables that the hub's own
// tools read, so that all of them share one cache and one login.
//
//   HF_ENDPOINT                          the hub; http is taken if it is said here
//   HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME  the cache: HF_HUB_CACHE, or HF_HOME/hub, or
//                                        XDG_CACHE_HOME/huggingface/hub, or ~/.cache/...
//   HF_TOKEN, HF_TOKEN_PATH              the token, or the file that holds it (HF_HOME/token)
//   HF_HUB_OFFLINE                       nothing is fetched
//   HF_HUB_DOWNLOAD_TIMEOUT              seconds without a byte after which a download is cut
//   HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR
struct Settings {
  Url endpoint;
  std::string cache_path;
  std::string token;  // empty: none
  bool offline = false;
  HttpOptions http;
  int retries = 5;               // after a failure that may mend itself, without progress between
  int64_t retry_pause_ms = 500;  // before the first; doubles with each

  // The address of a path of the hub; `path` begins with "/".
  Url At(const std::string& path) const;
};

Result<Settings> ReadSettings(const Environment& environment);

}  // namespace reprise::hub
