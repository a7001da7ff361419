// Rows that data names, few enough that a warp has a number for each in shared memory.

// What combining leaves as it is: a sum's 0 would turn -0 into 0.
template <class Op> struct Unchanging { static DEVICE typename Op::Accumulator value() { return Op::neutral(); } };
template <> struct Unchanging<PlainSum<float> > { static DEVICE float value() { return -0.0f; } };
template <> struct Unchanging<PlainSum<double> > { static DEVICE double value() { return -0.0; } };

// A warp takes so many neighbouring COLUMNS, a power of 2. Its lanes are parts of them: each combines what its steps change in KEYS numbers of its
// own, which lie in its bank. One more is for what changes nothing.
template <class Op, class T, int KEYS, int WARPS, int COLUMNS> struct Bins {
  static const int LANES = 32 / COLUMNS, SIZE = 32 * (KEYS + 1);
  static DEVICE T *of_warp(int warp) { return reinterpret_cast<T *>(dynamic_shared()) + warp * SIZE; }
  // The lane's own, before the first change.
  static DEVICE T *clear() {
    T *const own = of_warp(threadIdx.x / 32) + threadIdx.x % 32;
#pragma unroll 16
    for (int key = 0; key < KEYS; ++key) own[32 * key] = Unchanging<Op>::value();
    return own;
  }
  // Makes the changes of the steps from `begin` on that are below `end`. `ask` loads what is read for a step, `take` says what it changes (KEYS:
  // nothing). What is read for AHEAD steps is on the way while the changes before are made; beyond the end, the step `last` stands in.
  template <class Asked, int AHEAD, class Step, class Ask, class Take>
  static DEVICE void change(T *own, Step begin, Step end, Step last, Ask ask, Take take) {
    const Step lane = threadIdx.x % 32 / COLUMNS;
    Asked asked[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) asked[k] = ask(smaller<Step>(begin + k * LANES + lane, last));
    for (Step base = begin; base < end; base += AHEAD * LANES) {
      uint32 key[AHEAD];
      Register<T> value[AHEAD];
#pragma unroll
      for (int k = 0; k < AHEAD; ++k) {
        const Step step = base + k * LANES + lane;
        take(smaller<Step>(step, last), asked[k], key[k], value[k]);
        key[k] = step < end ? key[k] : KEYS;
      }
#pragma unroll
      for (int k = 0; k < AHEAD; ++k) asked[k] = ask(smaller<Step>(base + (AHEAD + k) * LANES + lane, last));
      // Nothing else keeps the compiler from asking after the changes.
      __syncwarp();
#pragma unroll
      for (int k = 0; k < AHEAD; ++k) {
        T x = own[32 * key[k]];
        Op::take(x, value[k]);
        own[32 * key[k]] = x;
      }
    }
  }
  // Combines the warps' and lanes' numbers for each key and column, in one order, and puts them.
  template <class Put> static DEVICE void join(Put put) {
    __syncthreads();
    const int lane = threadIdx.x % 32;
#pragma unroll 4
    for (int key = threadIdx.x / 32; key < KEYS; key += WARPS) {
      T x = of_warp(0)[32 * key + lane];
#pragma unroll
      for (int warp = 1; warp < WARPS; ++warp) Op::join(x, of_warp(warp)[32 * key + lane]);
#pragma unroll
      for (int lanes = COLUMNS; lanes < 32; lanes *= 2) Op::join(x, shuffle_xor(x, lanes));
      put(key, x);
    }
  }
};
