// Converts strings between Python and C++. Python strings may hold lone surrogates, and C++ strings may hold any bytes.
#pragma once

#include <string>

#include <nanobind/nanobind.h>

namespace slackline::python {

// Text for people. A lone surrogate, which os.fsdecode() creates, becomes "\udcfc"; a byte that is not UTF-8 becomes
// "\xfc".
struct Text {
  std::string utf8;
};

// A path, or a setting that may contain one: the bytes by which the system knows it.
struct SystemText {
  std::string bytes;
};

// Encodes `text`, a Python str. Returns false if that is impossible. `errors` is as in str.encode().
inline bool Encode(PyObject* text, const char* errors, std::string& bytes) noexcept {
  PyObject* const encoded = PyUnicode_AsEncodedString(text, "utf-8", errors);
  if (encoded == nullptr) {
    PyErr_Clear();
    return false;
  }
  bytes.assign(PyBytes_AsString(encoded), static_cast<size_t>(PyBytes_Size(encoded)));
  Py_DecRef(encoded);
  return true;
}

}  // namespace slackline::python

namespace nanobind::detail {

template <>
struct type_caster<slackline::python::Text> {
  NB_TYPE_CASTER(slackline::python::Text, const_name("str"))

  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    return isinstance<str>(source) && slackline::python::Encode(source.ptr(), "backslashreplace", value.utf8);
  }
  static handle from_cpp(const slackline::python::Text& text, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_DecodeUTF8(text.utf8.data(), static_cast<Py_ssize_t>(text.utf8.size()), "backslashreplace");
  }
};

template <>
struct type_caster<slackline::python::SystemText> {
  NB_TYPE_CASTER(slackline::python::SystemText, const_name("str"))

  // Surrogates that os.fsdecode() never creates cannot name a file: the error that follows shows them.
  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    return isinstance<str>(source) && (slackline::python::Encode(source.ptr(), "surrogateescape", value.bytes) ||
                                       slackline::python::Encode(source.ptr(), "backslashreplace", value.bytes));
  }
};

}  // namespace nanobind::detail
