// Copies of a frame between host and GPU, one call each; transfer.py has the same copies in torch.
//
// Starting a copy in torch takes several microseconds, and longer on busy cores, while a frame on a GPU takes a
// quarter of a millisecond. Functions return the driver's status.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

// Addresses of the driver's functions, in the order of transfer.py.
struct Driver {
  int (*copy_to_device)(uint64_t, const void*, size_t, void*);
  int (*copy_to_host)(void*, uint64_t, size_t, void*);
  int (*copy_on_device)(uint64_t, uint64_t, size_t, void*);
  int (*record_event)(void*, void*);
  int (*wait_for_event)(void*, void*, unsigned);
  int (*wait_for_stream)(void*);
  int (*get_context)(void**);
  int (*set_context)(void*);
};

// Size of pieces: one is sent to the device while the next is copied to page-locked memory.
constexpr int64_t kPieceBytes = 1 << 18;
// Bytes from which a second thread copies too; for fewer, starting it takes longer.
constexpr int64_t kManyBytes = 1 << 21;

struct Piece {
  const char* from;
  int64_t to;  // Offset in the block, in bytes.
  int64_t size;
  int64_t before;  // Bytes before it in the block that are sent with it.
};

void* pointer(int64_t address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

const Driver& entries(const int64_t* driver) { return *reinterpret_cast<const Driver*>(driver); }

}  // namespace

extern "C" {

// Copy clouds through a page-locked block to a block on the device: lengths (int32), then `room` points per frame.
// Does not wait: the page-locked block must not change before the stream has finished.
//
// clouds: address and number of points of each frame.
int64_t send_clouds(const int64_t* driver, int64_t stream, int64_t host, int64_t device, int64_t first, int64_t room,
                    int64_t point_bytes, const int64_t* clouds, int64_t frames, int64_t threads) {
  const Driver& call = entries(driver);
  char* block = static_cast<char*>(pointer(host));
  std::vector<Piece> pieces;
  int64_t total = 0;
  for (int64_t frame = 0; frame < frames; ++frame) {
    const char* from = static_cast<const char*>(pointer(clouds[2 * frame]));
    const int64_t points = clouds[2 * frame + 1], size = points * point_bytes;
    const auto length = static_cast<int32_t>(points);
    std::memcpy(block + 4 * frame, &length, 4);
    for (int64_t done = 0; done < size; done += kPieceBytes) {
      pieces.push_back({from + done, first + frame * room * point_bytes + done, std::min(kPieceBytes, size - done), 0});
    }
    // The lengths are sent with the first points, or alone.
    if (frame == 0 && size == 0) pieces.push_back({block, first, 0, 0});
    if (frame == 0) pieces[0].before = first;
    total += size;
  }
  std::atomic<size_t> next{0};
  std::atomic<int> status{0};
  const auto work = [&] {
    for (size_t at = next++; at < pieces.size() && status == 0; at = next++) {
      const Piece& piece = pieces[at];
      std::memcpy(block + piece.to, piece.from, static_cast<size_t>(piece.size));
      const int64_t start = piece.to - piece.before;
      const int failed = call.copy_to_device(static_cast<uint64_t>(device + start), block + start,
                                             static_cast<size_t>(piece.size + piece.before), pointer(stream));
      if (failed != 0) status = failed;
    }
  };
  if (threads < 2 || total < kManyBytes) {
    work();
    return status;
  }
  void* context = nullptr;
  const int known = call.get_context(&context);
  if (known != 0) return known;
  std::thread second([&] {
    const int failed = call.set_context(context);
    if (failed == 0) {
      work();
    } else {
      status = failed;
    }
  });
  work();
  second.join();
  return status;
}

// Copy within the device, on one stream after another stream.
int64_t hand_over(const int64_t* driver, int64_t from_stream, int64_t to_stream, int64_t event, int64_t source,
                  int64_t target, int64_t size) {
  const Driver& call = entries(driver);
  int status = call.record_event(pointer(event), pointer(from_stream));
  if (status == 0) status = call.wait_for_event(pointer(to_stream), pointer(event), 0);
  if (status == 0) {
    status = call.copy_on_device(static_cast<uint64_t>(target), static_cast<uint64_t>(source),
                                 static_cast<size_t>(size), pointer(to_stream));
  }
  return status;
}

// Copy a result to page-locked memory; wait for it unless an event is given.
int64_t fetch(const int64_t* driver, int64_t stream, int64_t source, int64_t target, int64_t size, int64_t event) {
  const Driver& call = entries(driver);
  const int status = call.copy_to_host(pointer(target), static_cast<uint64_t>(source), static_cast<size_t>(size),
                                       pointer(stream));
  if (status != 0) return status;
  return event != 0 ? call.record_event(pointer(event), pointer(stream)) : call.wait_for_stream(pointer(stream));
}

}  // extern "C"
