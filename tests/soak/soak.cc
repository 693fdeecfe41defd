// SPDX-License-Identifier: Apache-2.0
// The server under load that it must bear: many streams, clients that leave, clients that are slow;
// and what HTTP costs. usage: soak [short|long] [streams|disconnects|loris|overhead]
//
// The model is paced (soak_server.h), so that what is measured is the server's own part. `short`
// runs in the tests and judges only what was answered and freed (machines there are shared); `long`
// also holds the promised times.
#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "soak_server.h"
#include "swarm.h"

namespace reprise {
namespace {

using Steady = Swarm::Clock;
using namespace std::chrono_literals;

bool is_long = false;
bool all_good = true;

double Ms(Steady::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// NaN: what never came.
void Judge(const char* what, double value, double limit) {
  const bool good = value <= limit;
  std::printf("  %-52s %10.3f   limit %10.3f   %s\n", what, value, limit, good ? "ok" : "MISSED");
  all_good = all_good && good;
}

void Show(const char* what, double value) { std::printf("  %-52s %10.3f\n", what, value); }

// A time: held to its limit only by `long`.
void JudgeTime(const char* what, double value, double limit) {
  if (is_long || std::isnan(value)) return Judge(what, value, limit);
  Show(what, value);
}

std::string StreamRequest(const SoakServer& server, int tokens, int salt) {
  return PostRequest(
      "/v1/completions",
      "{\"prompt\":" + server.prompt() + ",\"max_tokens\":" + std::to_string(tokens) +
          ",\"temperature\":0,\"ignore_eos\":true,\"stream\":true,\"cache_salt\":\"" +
          std::to_string(salt) + "\"}");
}

// Events in what arrived: chunks of the reply.
size_t CountEvents(const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find("data: {"); at != std::string::npos;
       at = text.find("data: {", at + 7)) {
    ++count;
  }
  return count;
}

bool IsComplete(const std::string& text) {
  return text.find("data: [DONE]\n\n") != std::string::npos;
}

// All clients at once, each with a stream of its own; the gaps that they see against those of the
// engine.
void Streams() {
  const int clients = is_long ? 1000 : 200;
  const int tokens = is_long ? 200 : 40;
  std::printf("streams: %d at once, %d tokens each, a token every 50 ms\n", clients, tokens);
  SoakServer::Options options;
  options.step = 50ms;
  const auto server = SoakServer::Start(options);
  Swarm swarm(server->port());
  std::vector<double> gaps;
  size_t complete = 0;
  size_t failed = 0;
  for (int i = 0; i < clients; ++i)
    swarm.Send(swarm.Connect(), StreamRequest(*server, tokens, i % 8));
  const auto arrived = [&](Swarm::Client* client) {
    const auto now = Steady::now();
    const size_t events = CountEvents(client->in);
    if (events > 0) {
      // Gaps of the steady state: the first tokens wait for the prompts of all others.
      if (client->events > 5) gaps.push_back(Ms(now - client->last_event));
      client->last_event = now;
      client->events += events;
    }
    const bool done = IsComplete(client->in);
    if (!done && client->closed) ++failed;
    client->in.clear();
    if (!done) return;
    ++complete;
    swarm.Close(client);
  };
  server->executor().TakeGaps();
  swarm.Run(
      120s, [&] { return complete + failed == static_cast<size_t>(clients); }, arrived);
  std::vector<double> ideal = server->executor().TakeGaps();
  ideal.erase(ideal.begin(), ideal.begin() + static_cast<ptrdiff_t>(ideal.size() / 10));
  Judge("clients without a whole answer", double(clients) - double(complete) + double(failed), 0);
  Show("engine's own gap, median ms", Percentile(ideal, 0.5));
  Show("engine's own gap, p99 ms", Percentile(ideal, 0.99));
  Show("client's gap, median ms", Percentile(gaps, 0.5));
  Show("client's gap, p99 ms", Percentile(gaps, 0.99));
  JudgeTime("p99 over the engine's p99, ms", Percentile(gaps, 0.99) - Percentile(ideal, 0.99), 10);
  JudgeTime("time until nothing is held, ms", server->WaitUntilEmpty(5s), 1000);
}

// Clients that leave at every possible moment.
void Disconnects() {
  const int clients = is_long ? 1000 : 200;
  std::printf("disconnects: %d clients leave at random moments\n", clients);
  SoakServer::Options options;
  options.step = 2ms;
  const auto server = SoakServer::Start(options);
  std::mt19937 random(42);
  int left = clients;
  while (left > 0) {
    Swarm swarm(server->port());
    const int wave = std::min(left, 50);
    left -= wave;
    std::vector<std::pair<Swarm::Client*, size_t>> waiting;  // leaves after so many events
    for (int i = 0; i < wave; ++i) {
      Swarm::Client* client = swarm.Connect();
      const std::string request = StreamRequest(*server, 400, static_cast<int>(random() % 4));
      switch (random() % 6) {
        case 0:  // inside the head
          swarm.Send(client, request.substr(0, 1 + random() % 60));
          swarm.Close(client);
          break;
        case 1:  // inside the body
          swarm.Send(client, request.substr(0, request.size() - 1 - random() % 40));
          swarm.Close(client);
          break;
        case 2:  // before the first token
          swarm.Send(client, request);
          swarm.Close(client);
          break;
        case 3:  // half closed
          swarm.Send(client, request);
          swarm.HalfClose(client);
          break;
        default:  // in the middle of the stream
          swarm.Send(client, request);
          waiting.emplace_back(client, 1 + random() % 100);
      }
    }
    const auto arrived = [&](Swarm::Client* client) {
      client->events += CountEvents(client->in);
      client->in.clear();
      for (const auto& [waits, events] : waiting) {
        if (waits == client && client->events >= events) swarm.Close(client);
      }
    };
    swarm.Run(
        500ms, [&] { return swarm.open_count() == 0; }, arrived);
  }
  JudgeTime("time until nothing is held, ms", server->WaitUntilEmpty(10s), 200);
  const EngineStats stats = server->engine().stats();
  Show("requests cancelled", double(stats.requests_cancelled));
  Judge("requests failed", double(stats.requests_failed), 0);
  Judge("blocks leased", double(stats.cache.blocks_leased), 0);
  Judge("leases", double(stats.cache.leases), 0);
}

// The time of GET /health, one after the other, while `time` lasts.
std::vector<double> ProbeHealth(SoakServer* server, std::chrono::milliseconds time) {
  std::vector<double> times;
  Swarm swarm(server->port());
  Swarm::Client* client = swarm.Connect();
  const auto end = Steady::now() + time;
  while (Steady::now() < end) {
    client->in.clear();
    const auto begin = Steady::now();
    swarm.Send(client, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    swarm.Run(
        2s, [&] { return client->in.find("{\"status\":\"ok\"}") != std::string::npos; },
        [](Swarm::Client*) {});
    times.push_back(Ms(Steady::now() - begin));
    std::this_thread::sleep_for(2ms);
  }
  return times;
}

void Loris() {
  const int clients = is_long ? 1000 : 200;
  const auto time = is_long ? 10s : 2s;
  const char* modes[] = {"slow heads", "slow bodies", "clients that take nothing"};
  for (int mode = 0; mode < 3; ++mode) {
    std::printf("slow-loris: %d connections, %s\n", clients, modes[mode]);
    SoakServer::Options options;
    options.step = 50ms;
    const auto server = SoakServer::Start(options);
    Swarm swarm(server->port());
    std::vector<Swarm::Client*> slow;
    for (int i = 0; i < clients; ++i) {
      slow.push_back(swarm.Connect());
      if (mode == 0) swarm.Send(slow.back(), "POST /v1/completions HTTP/1.1\r\nHost: l\r\n");
      if (mode == 1) {
        swarm.Send(slow.back(),
                   "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                   "Content-Length: 100000\r\n\r\n{");
      }
      if (mode == 2) {
        swarm.StopReading(slow.back());
        swarm.Send(slow.back(), StreamRequest(*server, 1000, 0));
      }
    }
    std::vector<double> times;
    std::thread probe([&] { times = ProbeHealth(server.get(), time); });
    const auto end = Steady::now() + time;
    while (Steady::now() < end) {
      for (Swarm::Client* client : slow) {
        if (!client->closed && mode < 2) swarm.Send(client, mode == 0 ? "X" : " ");
      }
      swarm.Run(
          100ms, [] { return false; }, [](Swarm::Client* client) { client->in.clear(); });
    }
    probe.join();
    Show("health probes", double(times.size()));
    JudgeTime("/health p99, ms", Percentile(times, 0.99), 50);
  }
}

double ServerThreadSeconds(SoakServer* server) {
  double seconds = -1;
  std::atomic<bool> done{false};
  server->server().Post([&] {
    seconds = ThreadSeconds();
    done = true;
  });
  while (!done) std::this_thread::sleep_for(1ms);
  return seconds;
}

// What HTTP adds to the first token, and what a streamed token costs the server's thread.
void Overhead() {
  const int clients = 100;
  const int tokens = is_long ? 500 : 200;
  std::printf("overhead: %d connections, %d tokens each\n", clients, tokens);
  SoakServer::Options options;
  options.step = 5ms;
  const auto server = SoakServer::Start(options);
  {
    // One at a time, so that the engine's own time is not a queue.
    std::vector<double> added;
    Swarm swarm(server->port());
    Swarm::Client* client = swarm.Connect();
    for (int i = 0; i < (is_long ? 400 : 50); ++i) {
      client->in.clear();
      const auto begin = Steady::now();
      swarm.Send(client, StreamRequest(*server, 1, i));
      Steady::time_point first;
      swarm.Run(
          5s, [&] { return IsComplete(client->in); },
          [&](Swarm::Client* c) {
            if (first == Steady::time_point() && CountEvents(c->in) > 0) first = Steady::now();
          });
      const size_t at = client->in.find("\"first_token_ms\":");
      CHECK(at != std::string::npos);
      added.push_back(Ms(first - begin) - std::atof(client->in.c_str() + at + 17));
    }
    Show("added to the first token, median ms", Percentile(added, 0.5));
    JudgeTime("added to the first token, p90 ms", Percentile(added, 0.9), 1);
  }
  Swarm swarm(server->port());
  size_t complete = 0;
  size_t events = 0;
  const double begin = ServerThreadSeconds(server.get());
  for (int i = 0; i < clients; ++i) swarm.Send(swarm.Connect(), StreamRequest(*server, tokens, 1));
  swarm.Run(
      60s, [&] { return complete == static_cast<size_t>(clients); },
      [&](Swarm::Client* client) {
        events += CountEvents(client->in);
        const bool done = IsComplete(client->in);
        client->in.clear();
        if (!done) return;
        ++complete;
        swarm.Close(client);
      });
  const double spent = ServerThreadSeconds(server.get()) - begin;
  Judge("clients without a whole answer", double(clients) - double(complete), 0);
  Show("events per token", double(events) / double(clients * tokens));
  JudgeTime("server thread per streamed token, microseconds", spent * 1e6 / double(events), 20);
}

int Main(int argc, char** argv) {
  std::string only;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "long") == 0) {
      is_long = true;
    } else if (std::strcmp(argv[i], "short") != 0) {
      only = argv[i];
    }
  }
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  SetLogLevel(LogLevel::kError);
  const std::pair<const char*, void (*)()> parts[] = {
      {"streams", Streams}, {"disconnects", Disconnects}, {"loris", Loris}, {"overhead", Overhead}};
  for (const auto& [name, run] : parts) {
    if (only.empty() || only == name) run();
  }
  std::printf("%s\n", all_good ? "all good" : "MISSED");
  return all_good ? 0 : 1;
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) { return reprise::Main(argc, argv); }
