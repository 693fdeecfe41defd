// SPDX-License-Identifier: Apache-2.0
#include "api/test_service.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "text/vocab/json/tokenizer_json.h"

namespace reprise::api {
namespace {

constexpr int32_t kContextTokens = 256;
constexpr int32_t kVocabSize = 262;
constexpr char kTemplate[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking %}<think>{% endif %}{% endif %}";

// A byte-level vocabulary without merges, in GPT-2's alphabet. Not all of its control tokens are
// special, and not all stand in the template.
std::string MakeTokenizerJson() {
  const auto plain = [](int b) {
    return (b >= 33 && b < 127) || (b >= 161 && b < 173) || (b >= 174 && b < 256);
  };
  std::string vocab;
  for (int byte = 0, shifted = 256; byte < 256; ++byte) {
    const int code = plain(byte) ? byte : shifted++;
    std::string text;
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 0x3F));
    }
    if (byte > 0) vocab += ',';
    AppendJsonString(text, &vocab);
    vocab += ":" + std::to_string(byte);
  }
  std::string added;
  int id = 256;
  for (const char* text : {"<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>",
                           "<|fim_middle|>", "<|file_sep|>"}) {
    if (!added.empty()) added += ',';
    added += R"({"id":)" + std::to_string(id) + R"(,"content":")" + text +
             R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)" +
             R"("special":)" + (id < 258 ? "true}" : "false}");
    ++id;
  }
  CHECK(id == kVocabSize);
  return R"({"version":"1.0","added_tokens":[)" + added +
         R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)" +
         R"("use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel"},)" +
         R"("model":{"type":"BPE","vocab":{)" + vocab + R"(},"merges":[]}})";
}

// After every token comes the next one of the alphabet; after "z" the end.
class Alphabet final : public Executor {
 public:
  Alphabet() {
    card_.family = "alphabet";
    card_.vocab_size = kVocabSize;
    card_.dim = 2;
    card_.context_length = kContextTokens;
    card_.digest = "alphabet";
    card_.state.token_cost = 1;
    card_.state.layers.push_back({0, StateKind::kFullKv, 0, {{"k", {1, 4}, DType::kF32}}});
  }
  const ModelCard& card() const override { return card_; }
  bool keeps() const override { return true; }  // there is nothing in its K/V
  Status Forward(const BatchView& batch, const StateMemory&, float* logits) override {
    for (uint8_t& finite : batch.finite) finite = 1;
    for (size_t i = 0; i < batch.hidden.size(); ++i) {
      batch.hidden[i] = i % 2 == 0 ? static_cast<float>(batch.tokens[i / 2]) : 1;
    }
    for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
      float* row = logits + static_cast<int64_t>(i) * card_.vocab_size;
      std::fill(row, row + card_.vocab_size, 0.0f);
      const TokenId last = batch.tokens[batch.logit_rows[i]];
      row[last == 'z' ? 257 : last >= 'a' && last < 'z' ? last + 1 : 'a'] = 100;
    }
    return OkStatus();
  }

 private:
  ModelCard card_;
};

using Tasks = std::deque<std::function<void()>>;

class TestExchange final : public http::Exchange {
 public:
  TestExchange(http::Request request, AccountPtr account, Tasks* tasks, size_t* answered,
               size_t leave_after)
      : request_(std::move(request)),
        account_(std::move(account)),
        tasks_(*tasks),
        answered_(*answered),
        leave_after_(leave_after) {}

  const http::Request& request() const override { return request_; }
  bool abandoned() const override { return done_; }
  const AccountPtr& account() const override { return account_; }
  void StartOver() override { again_ = true; }
  bool TakeAgain() { return std::exchange(again_, false); }
  std::function<void()> Park() override { CHECK(false && "nothing here has to wait"); }
  void Keep(std::shared_ptr<void> token) override { kept_.push_back(std::move(token)); }
  void Respond(http::Response response) override {
    if (done_) return;
    CHECK(!answer.streamed);
    answer.status = response.status;
    answer.body = std::move(response.body);
    End();
  }
  void StartStream(http::Headers) override {
    if (done_) return;
    answer.status = 200;
    answer.streamed = true;
  }
  void Send(std::string bytes) override {
    if (done_) return;
    CHECK(answer.streamed);
    answer.body += bytes;
    if (++pieces_ < leave_after_) return;
    if (closed_) Post(closed_);
    End();
  }
  void End() override {
    if (!done_) answer.rank = answered_++;
    done_ = true;
    closed_ = nullptr;  // whoever asked for it may hold this exchange
  }
  size_t pending_bytes() const override { return stalled ? SIZE_MAX : 0; }
  void OnClose(std::function<void()> closed) override { closed_ = std::move(closed); }
  void OnDrained(std::function<void()> drained) override { drained_ = std::move(drained); }
  void Drain() {
    stalled = false;
    if (drained_) Post(drained_);
  }
  void Post(std::function<void()> task) override { tasks_.push_back(std::move(task)); }
  void After(std::chrono::milliseconds, std::function<void()>) override {}

  TestService::Answer answer;
  bool stalled = false;

 private:
  const http::Request request_;
  const AccountPtr account_;
  bool again_ = false;
  std::vector<std::shared_ptr<void>> kept_;
  Tasks& tasks_;
  size_t& answered_;
  const size_t leave_after_;
  size_t pieces_ = 0;
  std::function<void()> closed_;
  std::function<void()> drained_;
  bool done_ = false;
};

}  // namespace

struct TestService::Parts {
  Parts(ServiceOptions options, TextVectors vectors, std::string source);
  std::shared_ptr<TestExchange> Begin(http::Request request, size_t leave_after);
  void RunAll();

  SteadyClock clock;
  Alphabet executor;
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::optional<ChatEncoder> chat_encoder;
  ServedModel model;
  Tasks tasks;
  bool stalled = false;                  // clients of what comes now
  std::shared_ptr<TestExchange> unread;  // the last of them
  size_t answered = 0;
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  Account::Limits limits;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Service> service;
  http::Router router;
};

TestService::Parts::Parts(ServiceOptions options, TextVectors vectors, std::string source) {
  SetLogLevel(LogLevel::kWarning);
  auto vocab = ParseTokenizerJson(MakeTokenizerJson());
  CHECK(vocab.ok());
  vocab->eos_ids = {257};
  auto made = Tokenizer::Make(std::move(*vocab));
  CHECK(made.ok());
  tokenizer = std::move(*made);
  if (source.empty()) source = kTemplate;
  auto parsed = ChatTemplate::Parse(source);
  CHECK(parsed.ok());
  chat_template.emplace(std::move(*parsed));
  model.id = "alphabet";
  model.vocab_size = kVocabSize;
  model.context_tokens = kContextTokens;
  model.dim = executor.card().dim;
  model.vectors = std::move(vectors);
  model.tokenizer = tokenizer.get();
  model.chat_template = &*chat_template;
  model.output = OutputFormat::Detect(source, tokenizer.get());
  model.call_shape = FindCallShape(*chat_template);
  if (model.call_shape.tools_as_text) model.output.AddGenericCalls(*tokenizer);
  model.system_shape = FindSystemShape(*chat_template);
  model.thinking = ThinkingSwitches::Detect(source);
  model.template_source = std::move(source);
  chat_encoder.emplace(tokenizer.get());
  model.chat_encoder = &*chat_encoder;
  CacheOptions cache;
  cache.budget_bytes = size_t{8} << 20;
  cache.context_tokens = kContextTokens;
  auto state = StateCache::Create(executor.card().state, cache);
  CHECK(state.ok());
  EngineOptions engine_options;
  engine_options.context_tokens = kContextTokens;
  engine_options.speculation.window = 8;  // of requests that ask for drafts
  engine = std::make_unique<Engine>(executor, std::move(*state), engine_options, clock);
  service = std::make_unique<Service>(&model, engine.get(), &clock, std::move(options));
  service->SetLater([this](std::function<void()> task) { tasks.push_back(std::move(task)); });
  service->AddRoutes(&router);
}

void TestService::Parts::RunAll() {
  for (bool worked = true; worked;) {
    worked = engine->Step();
    while (!tasks.empty()) {
      const std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      task();
      worked = true;
    }
  }
}

TestService::TestService(ServiceOptions options, TextVectors vectors, std::string chat_template)
    : parts_(std::make_unique<Parts>(std::move(options), std::move(vectors),
                                     std::move(chat_template))) {}
// What waits to be done may hold the service.
TestService::~TestService() { parts_->tasks.clear(); }

std::shared_ptr<TestExchange> TestService::Parts::Begin(http::Request request, size_t leave_after) {
  const http::Router::Match match = router.Find(request.method, request.path);
  if (match.route == nullptr) return nullptr;
  const Tenant* tenant = service->FindTenant(request);
  const auto account =
      std::make_shared<Account>(ledger, tenant != nullptr ? tenant->name : std::string(), limits);
  CHECK(account->TakeBody(request.body.size()).ok());
  const auto exchange =
      std::make_shared<TestExchange>(std::move(request), account, &tasks, &answered, leave_after);
  exchange->stalled = stalled;
  if (stalled) unread = exchange;
  match.route->handler(exchange);
  if (exchange->TakeAgain()) {
    ++exchange->answer.restarts;
    account->Widen();
    match.route->handler(exchange);
    CHECK(!exchange->TakeAgain());
  }
  exchange->answer.work = account->work();
  exchange->answer.most_bytes = ledger->bytes_most();
  account->EndReading();
  return exchange;
}

TestService::Answer TestService::Send(http::Request request, size_t leave_after) {
  const auto exchange = parts_->Begin(std::move(request), leave_after);
  parts_->RunAll();
  return exchange ? exchange->answer : Answer();
}

TestService::Answer TestService::Begin(http::Request request) {
  const auto exchange = parts_->Begin(std::move(request), SIZE_MAX);
  return exchange ? exchange->answer : Answer();
}

std::vector<TestService::Answer> TestService::SendAll(std::vector<http::Request> requests) {
  std::vector<std::shared_ptr<TestExchange>> exchanges;
  parts_->answered = 0;
  for (http::Request& request : requests) {
    exchanges.push_back(parts_->Begin(std::move(request), SIZE_MAX));
    CHECK(exchanges.back() != nullptr);
  }
  parts_->RunAll();
  std::vector<Answer> answers;
  for (const auto& exchange : exchanges) answers.push_back(exchange->answer);
  return answers;
}

http::Request TestService::MakePost(std::string_view path, std::string_view body) {
  http::Request request;
  request.method = "POST";
  request.path = std::string(path);
  request.headers = {{"Content-Type", "application/json"}};
  request.body = std::string(body);
  request.id = "test";
  return request;
}

TestService::Answer TestService::Post(std::string_view path, std::string_view body) {
  return Send(MakePost(path, body));
}

void TestService::SetStalled(bool stalled) { parts_->stalled = stalled; }

std::string TestService::TakeStalled() {
  CHECK(parts_->unread != nullptr);
  parts_->unread->Drain();
  parts_->RunAll();
  return std::exchange(parts_->unread, nullptr)->answer.body;
}

Service& TestService::service() { return *parts_->service; }
Engine& TestService::engine() { return *parts_->engine; }
const Ledger& TestService::ledger() const { return *parts_->ledger; }
void TestService::SetLedger(const Ledger::Limits& limits) {
  parts_->ledger = std::make_shared<Ledger>(limits);
}

}  // namespace reprise::api
