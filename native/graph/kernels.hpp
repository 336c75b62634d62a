// The four kernels of the extension, in PTX, which the driver compiles: so no CUDA compiler is needed to build it.
#pragma once

namespace kdvfs::graph {

// hash (words of 16 bytes, their count, words a chunk, sums): a block a chunk; sums[block] = sum over the chunk's words
// of a mix (multiply, xor, shift) of the word and its place. clock (readings): a thread a block; {cycle count, device
// time in ns, multiprocessor}, 8 bytes each. rest (ns): one thread that sleeps until so much of the device's time is over.
// time (marks, room): one thread writes the device's time behind those written before, of which marks[0] is the number,
// and none beyond `room`; room 0: forgets all.
inline constexpr const char *ptx = R"(
.version 6.3
.target sm_70
.address_size 64

.visible .entry kdvfs_hash(.param .u64 words, .param .u64 count, .param .u64 per_chunk, .param .u64 sums)
{
  .reg .pred %first, %is_out;
  .reg .b32 %thread, %threads, %block, %a, %b, %c, %d;
  .reg .b64 %words, %count, %chunk, %sums, %wide, %end, %place, %step, %at, %x, %y, %low, %high, %mine;
  .shared .align 8 .u64 total;
  ld.param.u64 %words, [words];
  ld.param.u64 %count, [count];
  ld.param.u64 %chunk, [per_chunk];
  ld.param.u64 %sums, [sums];
  mov.u32 %thread, %tid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %block, %ctaid.x;
  cvta.to.global.u64 %words, %words;
  cvta.to.global.u64 %sums, %sums;
  setp.eq.u32 %first, %thread, 0;
  mov.u64 %mine, 0;
  @%first st.shared.u64 [total], %mine;
  bar.sync 0;
  mul.wide.u32 %wide, %block, 8;
  add.u64 %sums, %sums, %wide;
  cvt.u64.u32 %wide, %block;
  mul.lo.u64 %place, %wide, %chunk;
  add.u64 %end, %place, %chunk;
  min.u64 %end, %end, %count;
  cvt.u64.u32 %wide, %thread;
  add.u64 %place, %place, %wide;
  cvt.u64.u32 %step, %threads;
next:
  setp.ge.u64 %is_out, %place, %end;
  @%is_out bra done;
  shl.b64 %at, %place, 4;
  add.u64 %at, %at, %words;
  ld.global.v4.u32 {%a, %b, %c, %d}, [%at];
  mov.b64 %low, {%a, %b};
  mov.b64 %high, {%c, %d};
  add.u64 %x, %place, 1;
  mul.lo.u64 %x, %x, 0x9e3779b97f4a7c15;
  xor.b64 %x, %x, %low;
  mul.lo.u64 %x, %x, 0xd6e8feb86659fd93;
  shr.u64 %y, %x, 32;
  xor.b64 %x, %x, %y;
  xor.b64 %x, %x, %high;
  mul.lo.u64 %x, %x, 0xd6e8feb86659fd93;
  shr.u64 %y, %x, 32;
  xor.b64 %x, %x, %y;
  add.u64 %mine, %mine, %x;
  add.u64 %place, %place, %step;
  bra next;
done:
  atom.shared.add.u64 %x, [total], %mine;
  bar.sync 0;
  @%first ld.shared.u64 %mine, [total];
  @%first st.global.u64 [%sums], %mine;
  ret;
}

.visible .entry kdvfs_clock(.param .u64 readings)
{
  .reg .b32 %block, %sm;
  .reg .b64 %at, %offset, %time, %cycles, %wide;
  ld.param.u64 %at, [readings];
  cvta.to.global.u64 %at, %at;
  mov.u32 %block, %ctaid.x;
  mov.u32 %sm, %smid;
  mul.wide.u32 %offset, %block, 24;
  add.u64 %at, %at, %offset;
  cvt.u64.u32 %wide, %sm;
  mov.u64 %time, %globaltimer;
  mov.u64 %cycles, %clock64;
  st.global.u64 [%at], %cycles;
  st.global.u64 [%at+8], %time;
  st.global.u64 [%at+16], %wide;
  ret;
}

.visible .entry kdvfs_rest(.param .u64 ns)
{
  .reg .pred %resting;
  .reg .b64 %ns, %begin, %now;
  ld.param.u64 %ns, [ns];
  mov.u64 %begin, %globaltimer;
again:
  nanosleep.u32 500;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %resting, %now, %ns;
  @%resting bra again;
  ret;
}

.visible .entry kdvfs_time(.param .u64 marks, .param .u64 room)
{
  .reg .pred %clears, %is_full;
  .reg .b64 %marks, %room, %count, %at, %time;
  ld.param.u64 %marks, [marks];
  ld.param.u64 %room, [room];
  cvta.to.global.u64 %marks, %marks;
  setp.eq.u64 %clears, %room, 0;
  mov.u64 %count, 0;
  @%clears bra counted;
  ld.global.u64 %count, [%marks];
  setp.ge.u64 %is_full, %count, %room;
  @%is_full bra done;
  add.u64 %count, %count, 1;
  shl.b64 %at, %count, 3;
  add.u64 %at, %at, %marks;
  mov.u64 %time, %globaltimer;
  st.global.u64 [%at], %time;
counted:
  st.global.u64 [%marks], %count;
done:
  ret;
}
)";

}  // namespace kdvfs::graph
