"""An allocator that notices writes beside arrays: FLAMBEAU_GUARD_MEMORY=1.

A kernel that writes past an array's end does its harm somewhere else, often thousands of calls later. With this switch
each array lies between `GUARD` bytes of a pattern, which are looked at when it is freed; where they have changed, the
process says so and aborts (``python -X faulthandler`` then shows which line let go of the array). It stands in for the
caching allocator, by the same interface of numpy's (NEP 49), and costs little: tests and conformance runs can have it on.
"""
from __future__ import annotations

import os

GUARD = 64                                            # bytes on either side; the first eight hold the array's size
PATTERN = 0xA5


def wanted() -> bool:
    """Whether FLAMBEAU_GUARD_MEMORY asks for it."""
    return os.environ.get("FLAMBEAU_GUARD_MEMORY", "").strip() not in ("", "0")


_WORDS = GUARD // 8
_PATTERN64 = int.from_bytes(bytes([PATTERN]) * 8, "little", signed=True)


def _text(name: str, message: str) -> str:
    """A line of text for dprintf, as a constant."""
    return f'@{name} = internal constant [{len(message) + 2} x i8] c"{message}\\0A\\00"'


TEXT = f"""
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @abort()
declare i32 @dprintf(i32, ptr, ...)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @flambeau_guarded_malloc(ptr %r, i64 %size) {{
entry:
  %all = add i64 %size, {2 * GUARD}
  %over = icmp ult i64 %all, %size
  br i1 %over, label %none, label %take
take:
  %block = call ptr @malloc(i64 %all)
  %missing = icmp eq ptr %block, null
  br i1 %missing, label %none, label %mark
mark:
  %p = getelementptr i8, ptr %block, i64 {GUARD}
  %end = getelementptr i8, ptr %p, i64 %size
  call void @llvm.memset.p0.i64(ptr %block, i8 {PATTERN}, i64 {GUARD}, i1 false)
  call void @llvm.memset.p0.i64(ptr %end, i8 {PATTERN}, i64 {GUARD}, i1 false)
  store i64 %size, ptr %block
  ret ptr %p
none:
  ret ptr null
}}

define ptr @flambeau_guarded_calloc(ptr %r, i64 %count, i64 %each) {{
entry:
  %product = call {{i64, i1}} @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %size = extractvalue {{i64, i1}} %product, 0
  %over = extractvalue {{i64, i1}} %product, 1
  br i1 %over, label %none, label %take
take:
  %p = call ptr @flambeau_guarded_malloc(ptr %r, i64 %size)
  %missing = icmp eq ptr %p, null
  br i1 %missing, label %none, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %size, i1 false)
  ret ptr %p
none:
  ret ptr null
}}
declare {{i64, i1}} @llvm.umul.with.overflow.i64(i64, i64)

; Whether `count` words from `p` hold the pattern.
define internal i1 @whole(ptr %p, i64 %count) {{
entry:
  br label %look
look:
  %i = phi i64 [0, %entry], [%next, %look]
  %seen = phi i64 [0, %entry], [%sum, %look]
  %at = getelementptr i64, ptr %p, i64 %i
  %word = load i64, ptr %at, align 1
  %other = xor i64 %word, {_PATTERN64}
  %sum = or i64 %seen, %other
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %look, label %done
done:
  %fine = icmp eq i64 %sum, 0
  ret i1 %fine
}}

; The size of the array at `p`, if nobody wrote beside it.
define internal i64 @checked(ptr %p) {{
entry:
  %block = getelementptr i8, ptr %p, i64 {-GUARD}
  %ahead = getelementptr i8, ptr %block, i64 8
  %fine = call i1 @whole(ptr %ahead, i64 {_WORDS - 1})
  br i1 %fine, label %behind, label %before
before:
  %told = call i32 (i32, ptr, ...) @dprintf(i32 2, ptr @flambeau_before)
  call void @abort()
  unreachable
behind:
  %size = load i64, ptr %block
  %end = getelementptr i8, ptr %p, i64 %size
  %fine.too = call i1 @whole(ptr %end, i64 {_WORDS})
  br i1 %fine.too, label %done, label %past
past:
  %told.too = call i32 (i32, ptr, ...) @dprintf(i32 2, ptr @flambeau_past, i64 %size)
  call void @abort()
  unreachable
done:
  ret i64 %size
}}

define void @flambeau_guarded_free(ptr %r, ptr %p, i64 %size) {{
entry:
  %none = icmp eq ptr %p, null
  br i1 %none, label %done, label %look
look:
  %was = call i64 @checked(ptr %p)
  %block = getelementptr i8, ptr %p, i64 {-GUARD}
  call void @free(ptr %block)
  br label %done
done:
  ret void
}}

define ptr @flambeau_guarded_realloc(ptr %r, ptr %p, i64 %size) {{
entry:
  %new = call ptr @flambeau_guarded_malloc(ptr %r, i64 %size)
  %missing = icmp eq ptr %new, null
  %first = icmp eq ptr %p, null
  %either = or i1 %missing, %first
  br i1 %either, label %done, label %move
move:
  %was = call i64 @checked(ptr %p)
  %both = call i64 @llvm.umin.i64(i64 %was, i64 %size)
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %p, i64 %both, i1 false)
  call void @flambeau_guarded_free(ptr %r, ptr %p, i64 0)
  br label %done
done:
  ret ptr %new
}}

{_text("flambeau_before", "flambeau: memory in front of an array was written; found when the array was freed")}
{_text("flambeau_past", "flambeau: memory behind an array of %ld bytes was written; found when the array was freed")}
"""
