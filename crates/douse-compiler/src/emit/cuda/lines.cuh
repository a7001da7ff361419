// How stages of float32 operands come into shared memory: line by line, whatever lies where.

// Copies one element of four bytes to shared memory, or a zero, while the thread goes on.
DEVICE void copy_4(void *to, const void *from, bool there) {
#ifdef __CUDA_ARCH__
  uint32 at = (uint32)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(at), "l"(from), "r"(there ? 4 : 0) : "memory");
#else
  *static_cast<uint32 *>(to) = there ? *static_cast<const uint32 *>(from) : 0u;
#endif
}

// ROWS rows of an operand, and how stages of so much DEPTH of them come into shared memory. There, what lies at one depth is a line; lines are LONGER
// than ROWS by so many elements, so that what a warp copies or reads at once lies in different banks.
template <int ROWS, int DEPTH, int LONGER, int THREADS, class Loader> struct Lines {
  static const int LINE = ROWS + LONGER, SIZE = LINE * DEPTH, COUNT = ROWS * DEPTH / THREADS;
  // The elements (or fours of them) of a thread: so many at one depth, so many rows apart, and then so many depths apart.
  static const int FOURS_APART = THREADS * 4 / ROWS, ADJACENT_APART = THREADS / ROWS, APART = THREADS / 8, DOWN = ROWS / APART;
  static_assert(THREADS % ROWS == 0 && ROWS % APART == 0 && DEPTH % 8 == 0 && DEPTH % FOURS_APART == 0 && DOWN <= 32, "whole parts for every thread");
  const Loader &loader;
  int64 row0;
  // Rows are adjacent: in fours, of which each is aligned (`whole`) or not, or one by one.
  bool adjacent, fours, whole;
  // The place of the thread's first element.
  int row, k;
  // Where that is in memory that is strided, in the stage at depth 0, and a bit for each of the thread's rows that is there.
  const float *first;
  uint32 there;
  // Of an image's windows: the offsets of the thread's rows, and, in shared memory, of the depths of the stage that comes next and the one after it.
  typedef typename Offsets<Loader>::Part Part;
  Part of_rows[DOWN];
  Part *of_depths;

  DEVICE Lines(const Loader &loader, int64 row0, void *offsets)
      : loader(loader), row0(row0), adjacent(loader.rows_are_adjacent()), fours(Loader::STRIDED && Loader::CHUNKS != SCATTERED && adjacent),
        whole(loader.template in_chunks<4>()), of_depths(static_cast<Part *>(offsets)) {
    row = fours ? threadIdx.x % (ROWS / 4) * 4 : adjacent ? threadIdx.x % ROWS : threadIdx.x / 8;
    k = fours ? threadIdx.x / (ROWS / 4) : adjacent ? threadIdx.x / ROWS : threadIdx.x % 8;
    if constexpr (Loader::STRIDED) {
      first = loader.start + ((row0 + row) * loader.row_stride + k * loader.depth_stride);
      there = 0;
#pragma unroll
      for (int i = 0; i < (DOWN < 4 ? 4 : DOWN); ++i) there |= row0 + row + (fours ? i : i * APART) < loader.rows ? 1u << i : 0u;
    }
    if constexpr (Offsets<Loader>::THERE) {
#pragma unroll
      for (int i = 0; i < DOWN; ++i) {
        of_rows[i] = loader.f.of_row(row0 + row + i * APART);
        if (row0 + row + i * APART >= loader.rows) of_rows[i].at[0] = Part::NOWHERE;
      }
    }
  }

  // Bytes of shared memory for offsets.
  static const int OFFSETS = Offsets<Loader>::THERE ? 2 * DEPTH * (int)sizeof(Part) : 0;
  // Computes the offsets of a stage's depths, before a barrier that precedes its `begin`.
  DEVICE void prepare(int step, int64 k0) const {
    if constexpr (Offsets<Loader>::THERE) {
      if (threadIdx.x < DEPTH) {
        Part part = loader.f.of_depth(k0 + threadIdx.x);
        if (k0 + threadIdx.x >= loader.depth) part.at[0] = Part::NOWHERE;
        of_depths[step % 2 * DEPTH + threadIdx.x] = part;
      }
    }
  }

  // Begins to bring the stage that begins at a depth.
  DEVICE void begin(int step, int64 k0, float *to) const {
    to += k * LINE + row;
    if constexpr (Loader::STRIDED) {
      // Without conditions where everything is there.
      if (row0 + ROWS <= loader.rows && k0 + DEPTH <= loader.depth) begin_strided<true>(k0, to);
      else begin_strided<false>(k0, to);
    } else {
      // All places first: each is a chain of operations, and copies keep their order.
      const float *from[COUNT];
      bool inside[COUNT];
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        int down = adjacent ? 0 : i % DOWN, deep = adjacent ? i * ADJACENT_APART : i / DOWN * 8;
        if constexpr (Offsets<Loader>::THERE) {
          auto place = of_rows[0].place;
          inside[i] = loader.f.meet(of_rows[down], of_depths[step % 2 * DEPTH + k + deep], place);
          from[i] = loader.f.at(place);
        } else {
          from[i] = loader.where(row0 + row + down * APART, k0 + k + deep);
          inside[i] = from[i] != nullptr;
          if (!inside[i]) from[i] = loader.start;
        }
      }
#pragma unroll
      for (int i = 0; i < COUNT; ++i)
        copy_4(to + (adjacent ? i * ADJACENT_APART * LINE : i / DOWN * 8 * LINE + i % DOWN * APART), from[i], inside[i]);
    }
  }

private:
  template <bool WHOLE> DEVICE void begin_strided(int64 k0, float *to) const {
    const float *from = first + k0 * loader.depth_stride;
    const int left = WHOLE ? DEPTH : (int)smaller<int64>(loader.depth - k0 - k, DEPTH);
    if (fours && whole) {
      const int bytes = WHOLE ? 16 : 4 * __popc(there & 15);
#pragma unroll
      for (int i = 0; i < COUNT / 4; ++i) {
        int deep = i * FOURS_APART;
        copy_16(to + deep * LINE, from + deep * loader.depth_stride, WHOLE || deep < left ? bytes : 0);
      }
    } else if (fours) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        int deep = i / 4 * FOURS_APART;
        copy_4(to + deep * LINE + i % 4, from + deep * loader.depth_stride + i % 4, WHOLE || (deep < left && there >> i % 4 & 1));
      }
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        int down = adjacent ? 0 : i % DOWN, deep = adjacent ? i * ADJACENT_APART : i / DOWN * 8;
        const float *one = from + (down * APART * loader.row_stride + deep * loader.depth_stride);
        copy_4(to + deep * LINE + down * APART, one, WHOLE || (deep < left && there >> down & 1));
      }
    }
  }
};

// The stages of both operands in shared memory, which go from one depth to another, and how they come there.
template <class LinesA, class LinesB, int DEPTH, int STAGES> struct Staged {
  static const int STAGE = LinesA::SIZE + LinesB::SIZE;
  static const bool OFFSETS = LinesA::OFFSETS > 0 || LinesB::OFFSETS > 0;
  const LinesA a;
  const LinesB b;
  float *memory;
  int64 first;
  int steps;

  template <class A, class B>
  DEVICE Staged(const A &left, const B &right, int64 m0, int64 n0, int64 begin, int64 end, float *memory)
      : a(left, m0, memory + STAGES * STAGE), b(right, n0, memory + STAGES * STAGE + LinesA::OFFSETS / 4), memory(memory), first(begin),
        steps((int)((end - begin + DEPTH - 1) / DEPTH)) {}

  // Computes what a stage's depths add to places, before a barrier that precedes its `fetch`.
  DEVICE void prepare(int step) const {
    a.prepare(step, first + (int64)step * DEPTH);
    b.prepare(step, first + (int64)step * DEPTH);
  }
  // Begins to bring a stage, if there is one, to a slot.
  DEVICE void fetch(int step, int slot) const {
    if (step < steps) {
      a.begin(step, first + (int64)step * DEPTH, memory + slot * STAGE);
      b.begin(step, first + (int64)step * DEPTH, memory + slot * STAGE + LinesA::SIZE);
    }
    end_copies();
  }
  // Begins to bring all stages but one, and waits for the first.
  DEVICE void start() const {
#pragma unroll
    for (int s = 0; s < STAGES; ++s) {
      prepare(s);
      if (OFFSETS) __syncthreads();
      if (s < STAGES - 1) fetch(s, s);
    }
    await_copies<STAGES - 2>();
    __syncthreads();
  }
};
