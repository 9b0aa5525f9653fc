package sdk

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// CORE-17: when Serve calls Closing, which ends the streams of hints, the socket's file has gone. GOAWAY goes out at the latest while Closing runs.
func TestTheEndHasItsOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket", "p.sock")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	frames, closed, ended := make(chan byte, 1000), make(chan bool, 1), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, func(server grpc.ServiceRegistrar) { contract.RegisterProviderServiceServer(server, &lower{}) }, ServeOptions{
			Endpoint: "unix://" + path, Logger: slog.New(slog.DiscardHandler), Closing: func() {
				_, err := os.Lstat(path)
				for patience := time.After(10 * time.Second); ; {
					select {
					case kind := <-frames:
						if kind == frameGoAway {
							closed <- os.IsNotExist(err)
							return
						}
					case <-patience:
						closed <- false
						return
					}
				}
			},
		})
	}()
	connection, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			raw, err := net.Dial("unix", path)
			if err != nil {
				return nil, err
			}
			through, ours := net.Pipe()
			go relayFrames(raw, ours, frames)
			go func() { _, _ = io.Copy(raw, ours) }()
			return through, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	watching, err := grpc_health_v1.NewHealthClient(connection).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = watching.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if inOrder := <-closed; !inOrder {
		t.Error("streams of hints end before the socket's file has gone and GOAWAY has gone out")
	}
	for err == nil {
		_, err = watching.Recv()
	}
	if err != io.EOF {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Copies frame by frame and reports the type of each.
func relayFrames(from io.ReadCloser, to io.WriteCloser, types chan<- byte) {
	defer from.Close()
	defer to.Close()
	for header := make([]byte, frameHeader); ; {
		if _, err := io.ReadFull(from, header); err != nil {
			return
		}
		payload := make([]byte, int(header[0])<<16|int(header[1])<<8|int(header[2]))
		if _, err := io.ReadFull(from, payload); err != nil {
			return
		}
		types <- header[3]
		if _, err := to.Write(append(header[:frameHeader:frameHeader], payload...)); err != nil {
			return
		}
	}
}

type sink struct{ net.Conn }

func (sink) Write(bytes []byte) (int, error) { return len(bytes), nil }
func (sink) Close() error                    { return nil }

func TestAGoAwayIsSeenHoweverFramesAreCut(t *testing.T) {
	// SETTINGS without a payload, DATA with a payload like a GOAWAY, GOAWAY.
	before := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, frameGoAway, 0, 0, 0, 0, 0}
	goAway := []byte{0, 0, 8, frameGoAway, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
	for size := 1; size <= len(before)+len(goAway); size++ {
		all := &conversations{}
		connection := &conversation{Conn: sink{}, all: all}
		all.open = map[*conversation]struct{}{connection: {}}
		told := all.allTold()
		write := func(bytes []byte) {
			for len(bytes) > 0 {
				sent, _ := connection.Write(bytes[:min(size, len(bytes))])
				bytes = bytes[sent:]
			}
		}
		write(before)
		select {
		case <-told:
			t.Errorf("cut to %d bytes: it is seen too early", size)
		default:
		}
		write(goAway)
		select {
		case <-told:
		default:
			t.Errorf("cut to %d bytes: it is not seen", size)
		}
		_ = connection.Close()
	}
	all := &conversations{}
	connection := &conversation{Conn: sink{}, all: all}
	all.open = map[*conversation]struct{}{connection: {}}
	told := all.allTold()
	_ = connection.Close()
	<-told
	<-all.allTold()
}

// CORE-17: gRPC may accept a connection after the shutdown has begun.
func TestAConnectionThatIsAcceptedDuringTheShutdownEndsQuietly(t *testing.T) {
	all := &conversations{Listener: endless{}}
	<-all.allTold()
	late, err := all.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Close(); err != nil {
		t.Error(err)
	}
}

type endless struct{ net.Listener }

func (endless) Accept() (net.Conn, error) { return sink{}, nil }
