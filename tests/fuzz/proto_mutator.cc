// Changes libFuzzer's inputs that are messages as text, field by field, so that they stay messages.
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>
#include "tests/fuzz/text_input.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace slackline::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kStringMax = 64;

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  void Mutate(Message& message) {
    for (uint32_t times = 1 + Below(3); times > 0; --times) {
      std::vector<Message*> all;
      Collect(message, all);
      Change(*all[Below(all.size())]);
    }
  }

  // Takes some of what the other one has at its top.
  void Cross(const Message& other, Message& message) {
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(other, &fields);
    if (fields.empty()) return;
    const FieldDescriptor* const field = fields[Below(fields.size())];
    if (!field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return;
    const auto size = static_cast<uint32_t>(reflection.FieldSize(other, field));
    const uint32_t begin = Below(size), end = begin + 1 + Below(size - begin);
    for (uint32_t i = begin; i < end; ++i) {
      reflection.AddMessage(&message, field)
          ->CopyFrom(reflection.GetRepeatedMessage(other, field, static_cast<int>(i)));
    }
  }

 private:
  uint32_t Below(size_t n) { return n == 0 ? 0 : static_cast<uint32_t>(random_() % n); }
  bool OneIn(uint32_t n) { return Below(n) == 0; }

  void Collect(Message& message, std::vector<Message*>& all) {
    all.push_back(&message);
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      if (!field->is_repeated()) {
        Collect(*reflection.MutableMessage(&message, field), all);
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        Collect(*reflection.MutableRepeatedMessage(&message, field, i), all);
      }
    }
  }

  void Change(Message& message) {
    const google::protobuf::Descriptor& type = *message.GetDescriptor();
    if (type.field_count() == 0) return;
    const FieldDescriptor* const field = type.field(static_cast<int>(Below(static_cast<size_t>(type.field_count()))));
    if (field->is_repeated()) return ChangeRepeated(message, *field);
    const Reflection& reflection = *message.GetReflection();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (reflection.HasField(message, field) && OneIn(4)) return reflection.ClearField(&message, field);
      return Change(*reflection.MutableMessage(&message, field));
    }
    if (OneIn(8)) return reflection.ClearField(&message, field);
    SetScalar(message, *field);
  }

  void ChangeRepeated(Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    const int size = reflection.FieldSize(message, &field);
    const int at = static_cast<int>(Below(static_cast<size_t>(size)));
    switch (size == 0 ? 0 : Below(5)) {
      case 0:
        return Add(message, field);
      case 1:  // goes
        reflection.SwapElements(&message, &field, at, size - 1);
        return reflection.RemoveLast(&message, &field);
      case 2:
        return reflection.SwapElements(&message, &field, at, static_cast<int>(Below(static_cast<size_t>(size))));
      case 3:  // once more
        if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return Add(message, field);
        reflection.AddMessage(&message, &field)->CopyFrom(Message_(message, field, at));
        return;
      default:
        if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return Add(message, field);
        return Change(*reflection.MutableRepeatedMessage(&message, &field, at));
    }
  }

  static std::unique_ptr<Message> Copy(const Message& message) {
    std::unique_ptr<Message> copy(message.New());
    copy->CopyFrom(message);
    return copy;
  }
  // A copy: adding may move the element.
  const Message& Message_(const Message& message, const FieldDescriptor& field, int at) {
    copied_ = Copy(message.GetReflection()->GetRepeatedMessage(message, &field, at));
    return *copied_;
  }

  // Most numbers of these protocols are small; the others are borders.
  uint64_t Number() {
    static constexpr uint64_t kBorders[] = {63,
                                            64,
                                            65,
                                            100,
                                            1000,
                                            1023,
                                            1024,
                                            1025,
                                            4095,
                                            4096,
                                            4097,
                                            12000,
                                            1 << 20,
                                            1 << 30,
                                            (1 << 30) + 1,
                                            INT32_MAX,
                                            uint64_t{1} << 31,
                                            UINT32_MAX - 1,
                                            UINT32_MAX,
                                            uint64_t{1} << 32,
                                            uint64_t{1} << 53,
                                            uint64_t{1} << 61,
                                            uint64_t{1} << 62,
                                            (uint64_t{1} << 62) + 1,
                                            INT64_MAX,
                                            uint64_t{1} << 63,
                                            UINT64_MAX - 1,
                                            UINT64_MAX};
    if (!OneIn(4)) return Below(12);
    return kBorders[Below(std::size(kBorders))];
  }

  double Real() {
    using Limits = std::numeric_limits<double>;
    static const double kBorders[] = {0,
                                      -0.0,
                                      1,
                                      -1,
                                      0.5,
                                      1e-300,
                                      1e15,
                                      1e18,
                                      1e19,
                                      1e300,
                                      -1e300,
                                      3e38,
                                      4e38,
                                      Limits::infinity(),
                                      -Limits::infinity(),
                                      Limits::quiet_NaN()};
    return kBorders[Below(std::size(kBorders))];
  }

  std::string Text(const std::string& before, bool bytes) {
    static constexpr const char* kNames[] = {"", "a", "w-1", "w-2", "w-3", "ps-1", "ps-2", "weight"};
    if (!bytes) return kNames[Below(std::size(kNames))];
    std::string text = before;
    const size_t size = std::min(text.size(), kStringMax);
    text.resize(kStringMax);
    text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, kStringMax));
    return text;
  }

  int EnumNumber(const FieldDescriptor& field) {
    const auto& values = *field.enum_type();
    if (OneIn(8)) return static_cast<int>(Number());
    return values.value(static_cast<int>(Below(static_cast<size_t>(values.value_count()))))->number();
  }

  // Near the value before, or any.
  uint64_t Next(uint64_t before) { return OneIn(3) ? before + Below(3) - 1 : Number(); }

  void SetScalar(Message& message, const FieldDescriptor& field) {
    const Reflection& r = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
        return r.SetUInt32(&message, &field, static_cast<uint32_t>(Next(r.GetUInt32(message, &field))));
      case FieldDescriptor::CPPTYPE_UINT64:
        return r.SetUInt64(&message, &field, Next(r.GetUInt64(message, &field)));
      case FieldDescriptor::CPPTYPE_INT32:
        return r.SetInt32(&message, &field, static_cast<int32_t>(Number()));
      case FieldDescriptor::CPPTYPE_INT64:
        return r.SetInt64(&message, &field, static_cast<int64_t>(Number()));
      case FieldDescriptor::CPPTYPE_BOOL:
        return r.SetBool(&message, &field, OneIn(2));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return r.SetDouble(&message, &field, Real());
      case FieldDescriptor::CPPTYPE_FLOAT:
        return r.SetFloat(&message, &field, static_cast<float>(Real()));
      case FieldDescriptor::CPPTYPE_ENUM:
        return r.SetEnumValue(&message, &field, EnumNumber(field));
      case FieldDescriptor::CPPTYPE_STRING: {
        const bool bytes = field.type() == FieldDescriptor::TYPE_BYTES;
        return r.SetString(&message, &field, Text(r.GetString(message, &field), bytes));
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return;
    }
  }

  void Add(Message& message, const FieldDescriptor& field) {
    const Reflection& r = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
        return r.AddUInt32(&message, &field, static_cast<uint32_t>(Number()));
      case FieldDescriptor::CPPTYPE_UINT64:
        return r.AddUInt64(&message, &field, Number());
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return r.AddDouble(&message, &field, Real());
      case FieldDescriptor::CPPTYPE_STRING:
        return r.AddString(&message, &field, Text("", field.type() == FieldDescriptor::TYPE_BYTES));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Change(*r.AddMessage(&message, &field));
      default:
        return;  // there are no others in the histories
    }
  }

  std::mt19937 random_;
  std::unique_ptr<Message> copied_;
};

// As text in `data`; `size` when that has no room for it.
size_t Write(const Message& message, uint8_t* data, size_t size, size_t max_size) {
  std::string text;
  if (!google::protobuf::TextFormat::PrintToString(message, &text) || text.size() > max_size) return size;
  text.copy(reinterpret_cast<char*>(data), text.size());
  return text.size();
}

}  // namespace
}  // namespace slackline::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const auto message = slackline::fuzz::NewInput();
  if (!slackline::fuzz::ParseText(data, size, *message)) message->Clear();
  slackline::fuzz::Mutator(seed).Mutate(*message);
  return slackline::fuzz::Write(*message, data, size, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* one, size_t one_size, const uint8_t* other,
                                            size_t other_size, uint8_t* out, size_t max_size, unsigned seed) {
  const auto message = slackline::fuzz::NewInput(), from = slackline::fuzz::NewInput();
  if (!slackline::fuzz::ParseText(one, one_size, *message)) message->Clear();
  if (!slackline::fuzz::ParseText(other, other_size, *from)) from->Clear();
  slackline::fuzz::Mutator(seed).Cross(*from, *message);
  return slackline::fuzz::Write(*message, out, 0, max_size);
}
