<?php

declare(strict_types=1);

namespace Tumira\Laravel;

use Illuminate\Notifications\Notification;
use Tumira\Client;
use Tumira\Sent;

/** Sends notifications whose `via` names `tumira`; each has a method `toTumira`. */
final class TumiraChannel
{
    public function __construct(private readonly Client $client)
    {
    }

    public function send(object $notifiable, Notification $notification): ?Sent
    {
        $to = $notifiable->routeNotificationFor('tumira', $notification);
        if ($to === null || $to === '' || $to === []) {
            return null;
        }
        $message = $notification->toTumira($notifiable);
        if (!$message instanceof TumiraMessage) {
            $message = new TumiraMessage((string) $message);
        }
        // A queued notification keeps its id when its job is tried again, so a retry is not billed again.
        $key = $notification->id === null ? null : hash('sha256', "{$notification->id} " . json_encode($to));
        return $this->client->send($to, $message->body, $message->reference, $key);
    }
}
