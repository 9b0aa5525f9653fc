/** The Unix socket: the rules for its path (CORE-2). */
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';

export const DEFAULT_ENDPOINT = 'unix:///run/cloud-provider/socket/provider.sock';
/** The longest path that fits into `sockaddr_un` on Linux. */
const MAX_PATH_BYTES = 107;

/** The reason why the provider does not serve. */
export class SocketError extends Error {}

/** The provider binds the socket under a private name, sets its mode, and renames it. So the socket never has another mode at its path, and replaces a stale socket atomically. */
export class SocketFile {
  readonly path: string;
  readonly private: string;
  private ours?: fs.Stats;

  constructor(endpoint: string) {
    const file = endpoint.slice('unix://'.length);
    if (!endpoint.startsWith('unix:///') || path.normalize(file) !== file || file.endsWith('/') || file.includes('\0')) {
      throw new SocketError(`the endpoint ${JSON.stringify(endpoint)} is not unix:// and the absolute path of a file; right would be ${DEFAULT_ENDPOINT}`);
    }
    const bytes = Buffer.byteLength(file);
    if (bytes > MAX_PATH_BYTES) throw new SocketError(`${file} has ${bytes} bytes; a Unix socket's path has at most ${MAX_PATH_BYTES}`);
    this.path = file;
    this.private = path.join(path.dirname(file), `.${randomBytes(2).toString('hex')}`);
  }

  /** Makes missing directories, 0750. Refuses symbolic links, another kind of file, and a socket on which a process answers. */
  async claim(): Promise<void> {
    const levels = [this.path];
    while (levels[0] !== '/') levels.unshift(path.dirname(levels[0]!));
    for (const level of levels) {
      const found = fs.lstatSync(level, { throwIfNoEntry: false });
      if (found?.isSymbolicLink()) throw new SocketError(`${level} is a symbolic link; give the endpoint by a path without one, such as ${fs.realpathSync(level)}`);
      if (!found && level !== this.path) {
        fs.mkdirSync(level, 0o750);
        fs.chmodSync(level, 0o750); // Whatever the umask.
      }
      if (found && level === this.path) {
        if (!found.isSocket()) throw new SocketError(`${level} exists and is not a socket: remove it, or choose another endpoint`);
        if (await answers(level)) throw new SocketError(`another provider answers on ${level}; stop it, or choose another endpoint`);
      }
    }
  }

  /** Gives the bound socket its mode and its name. */
  publish(): void {
    fs.chmodSync(this.private, 0o660);
    this.ours = fs.lstatSync(this.private);
    fs.renameSync(this.private, this.path);
  }

  /** Removes the file, if it is still this provider's socket. */
  remove(): void {
    const found = fs.lstatSync(this.path, { throwIfNoEntry: false });
    if (this.ours && found?.ino === this.ours.ino && found.dev === this.ours.dev) fs.unlinkSync(this.path);
  }
}

/** Whether a process answers. Only a refused connection shows that none does. */
function answers(file: string): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = net.connect(file);
    connection.on('connect', () => {
      connection.destroy();
      resolve(true);
    });
    connection.on('error', (error: NodeJS.ErrnoException) => resolve(error.code !== 'ECONNREFUSED'));
  });
}
